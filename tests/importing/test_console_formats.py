"""Lines as programs print them become the steps and evaluations that they speak of, whatever numbers them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import tracelyze
from tracelyze.importing import columns, recordings
from tracelyze.importing.logs import blocks

Curve = list[tuple[float, float]]

BAR = "\r 10%|███       | {}/300 [00:30<5:00, "
# What a program prints, the steps and losses in it, and its evaluations by the step that they stand behind.
PRINTED: dict[str, tuple[str, Curve, Curve]] = {
    "torchtitan with validation": (
        (
            "[titan] 2026 - root - INFO - step: 10  loss: 9.5  grad_norm: 1.2  memory: 62.7GiB(79.3%)  tps: 5,123\n"
            "[titan] 2026-03-08 - root - INFO - validate step: 10  loss: 9.75  memory: 40.01GiB(50.00%)  tps: 15,120\n"
        ),
        [(10, 9.5)],
        [(10, 9.75)],
    ),
    "DeepSpeed": (
        (
            "[2026-03-08 23:50:00,112] [INFO] [logging.py:96:log_dist] step=10, skipped=0, lr=[1e-4], mom=[0.9]\n"
            "steps: 10 loss: 8.125 iter time (s): 1.210 samples/sec: 26.2\n"
            "steps: 20 loss: 7.5 iter time (s): 1.215 samples/sec: 26.2\n"
        ),
        [(10, 8.125), (20, 7.5)],
        [],
    ),
    "fairseq": (
        (
            "2026-03-08 23:49:01 | INFO | train_inner | epoch 001:    100 / 6000 loss=13.5, nll_loss=12.3, ppl=8.1, "
            "wps=41234.5, num_updates=100, lr=1.25e-05, gnorm=2.5, clip=0, loss_scale=128, wall=9\n"
            "2026-03-08 23:59:01 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 9.25 | nll_loss 8.1 | "
            "ppl 20.1 | wps 101234 | num_updates 100 | best_loss 9.25\n"
            "2026-03-08 23:59:02 | INFO | train | epoch 001 | loss 11 | nll_loss 10 | num_updates 100 | lr 1e-05\n"
        ),
        [(100, 13.5)],
        [(100, 9.25)],
    ),
    "fairseq in JSON": (
        (
            '2026-03-08 | INFO | train_inner | {"epoch": 1, "update": 0.017, "loss": "13.5", "num_updates": "100"}\n'
            '2026-03-08 | INFO | valid | {"epoch": 1, "valid_loss": "9.25", "valid_num_updates": "100"}\n'
        ),
        [(100, 13.5)],
        [(100, 9.25)],
    ),
    "timm": (
        (
            "Train: 0 [   0/500 (  0%)]  Loss: 6.95 (6.95)  Time: 0.321s,  LR: 1.000e-05  Data: 0.009 (0.010)\n"
            "Train: 0 [ 250/500 ( 50%)]  Loss: 6.5 (6.7)  Time: 0.321s,  797.16/s  LR: 1.000e-05  Data: 0.009 (0.010)\n"
            "Test: [   0/48]  Time: 1.243 (1.243)  Loss:   5.125 ( 5.125)  Acc@1: 40.2 ( 40.2)\n"
            "Test: [  48/48]  Time: 0.143 (0.243)  Loss:   7.0 ( 6.25)  Acc@1: 40.2 ( 41.2)\n"
            "Train: 1 [   0/500 (  0%)]  Loss: 6.25 (6.25)  Time: 0.321s,  LR: 1.000e-05  Data: 0.009 (0.010)\n"
        ),
        [(0, 6.95), (250, 6.5), (500, 6.25)],
        [(250, 6.25)],
    ),
    "steps within epochs": (
        "".join(f"Epoch [{e}/3], Step [{s}/600], Loss: {4 - e - s / 600}\n" for e in (1, 2, 3) for s in (300, 600)),
        [(300, 2.5), (600, 2), (900, 1.5), (1200, 1), (1500, 0.5), (1800, 0)],
        [],
    ),
    "MMEngine": (
        "".join(
            f"2026/03/08 - mmengine - INFO - Epoch(train) [{e}][{s:>4}/2500]  lr: 1.0e-03  eta: 1:02:03  "
            f"time: 0.31  data_time: 0.01  grad_norm: 2.5  loss: {loss}  loss_cls: 0.1\n"
            for e, s, loss in ((1, 50, 5.0), (1, 2500, 4.0), (2, 50, 3.5))
        ),
        [(50, 5), (2500, 4), (2550, 3.5)],
        [],
    ),
    "epochs with both losses": (
        "Epoch 1/2, Train Loss: 2.5, Val Loss: 2.75, LR: 0.001\nEpoch 2/2, Train Loss: 2.0, Val Loss: 2.5, LR: 0.001\n",
        [(1, 2.5), (2, 2.0)],
        [(1, 2.75), (2, 2.5)],
    ),
    "Keras": (
        "".join(
            f"Epoch {e}/2\n\r\x1b[1m 900/1875\x1b[0m \x1b[32m━━━\x1b[0m \x1b[1m4s\x1b[0m 2ms/step - loss: 9.0"
            f"\r\x1b[1m1875/1875\x1b[0m \x1b[32m━━━━━━\x1b[0m 4s 2ms/step - loss: {3 - e} - val_loss: {4 - e}\n"
            for e in (1, 2)
        ),
        [(1, 2), (2, 1)],
        [(1, 3), (2, 2)],
    ),
    "a progress bar that goes on showing its last validation": (
        "Training\n"
        + BAR.format(1)
        + "loss=3.5]"
        + BAR.format(1)
        + "loss=3.5]"
        + BAR.format(2)
        + "loss=3.25, val_loss=4.5]"
        + BAR.format(3)
        + "loss=3.0, val_loss=4.5]\n",
        [(1, 3.5), (2, 3.25), (3, 3.0)],
        [(2, 4.5)],
    ),
    "OLMo": (
        (
            "2026-03-08 host01:0\tolmo.train:966\tINFO\t[step=1/739328,epoch=0]\n    optim/total_grad_norm=2.5\n"
            "    train/CrossEntropyLoss=10.5\n    throughput/total_tokens=4,194,304\n"
            "2026-03-08 host01:0\tolmo.train:966\tINFO\t[step=2/739328,epoch=0]\n    train/CrossEntropyLoss=10.25\n"
        ),
        [(1, 10.5), (2, 10.25)],
        [],
    ),
    "Composer": (
        "[batch=10/4800]:\n\t Train time/batch: 9\n\t Train loss/train/total: 10.5\n\t Train time/sample: 2560\n",
        [(10, 10.5)],
        [],
    ),
    "tensors and dicts in a line": (
        "step 1 loss=tensor(2.5, grad_fn=<NllLossBackward0>)\nGlobal step 2: {'loss': 2.25, 'kl': 0.1}\n",
        [(1, 2.5), (2, 2.25)],
        [],
    ),
    "Trainer with double quotes": (
        "".join(
            json.dumps({"loss": 4.0 - e, "grad_norm": math.nan, "learning_rate": 1e-4, "epoch": float(e)}) + "\n"
            for e in (1, 2)
        )
        + '{"eval_loss": 2.5, "eval_runtime": 12.3, "epoch": 2.0}\n'
        '{"train_runtime": 100.0, "train_steps_per_second": 2.0, "train_loss": 2.5, "epoch": 2.0}\n',
        [(100, 3), (200, 2)],
        [(200, 2.5)],
    ),
    "a log whose lines begin with a time and a zone": (
        (
            "2026-03-08T23:50:01.123Z INFO [trainer.py:211] Step 1,001/10,000 | loss=2.5 | lr=3.0e-04 | tok/s=12,345\n"
            "2026-03-08T23:50:02.123Z INFO [trainer.py:211] Step 1,002/10,000 | loss=2.25 | lr=3.0e-04 | tok/s=12,345\n"
        ),
        [(1001, 2.5), (1002, 2.25)],
        [],
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_what_a_program_prints_is_read(name: str, tmp_path: Path) -> None:
    printed, steps, evaluations = PRINTED[name]
    log = tmp_path / "train.log"
    log.write_text(printed)
    recordings.import_recording(log, tmp_path / "run")
    (process,) = tracelyze.load(tmp_path / "run").processes
    assert list(zip(process.steps["step"], process.steps["loss"], strict=True)) == steps
    found = [(row["after_step"], row["loss"]) for row in process.evals.records() if row["purpose"] == "validation"]
    assert found == evaluations


FILES: dict[str, tuple[str, Curve, Curve]] = {
    "results.csv": (  # Ultralytics pads its columns, and writes parts of the loss and no loss
        (
            "                  epoch,                   time,         train/box_loss,         train/cls_loss,"
            "         train/dfl_loss,           val/box_loss,           val/cls_loss,           val/dfl_loss\n"
            "                      1,                   31.2,                    1.5,                      2,"
            "                    0.5,                    1.5,                      2,                      1\n"
        ),
        [(1, 4.0)],
        [(1, 4.5)],
    ),
    "summary.csv": (  # timm
        "epoch,train_loss,eval_loss,eval_top1,lr\n0,6.5,6.75,0.1,0.001\n1,5.5,5.75,10.5,0.001\n",
        [(0, 6.5), (1, 5.5)],
        [(0, 6.75), (1, 5.75)],
    ),
    "20260308.log.json": (  # MMCV: the iteration begins anew with every epoch, and an evaluation counts its own
        (
            '{"env_info": "linux", "seed": 0}\n{"mode": "train", "epoch": 1, "iter": 1000, "loss": 5.0, "lr": 0.1}\n'
            '{"mode": "train", "epoch": 1, "iter": 2000, "loss": 4.0, "lr": 0.1}\n'
            '{"mode": "val", "epoch": 1, "iter": 500, "bbox_mAP": 0.1}\n'
            '{"mode": "train", "epoch": 2, "iter": 1000, "loss": 3.0, "lr": 0.1}\n'
        ),
        [(1000, 5), (2000, 4), (3000, 3)],
        [],
    ),
    "metrics.jsonl": (  # a logger that keeps the values in an object of their own, and these in others
        '{"step": 1, "data": {"train": {"loss": 2.5, "optim": {"lr": 0.001}}, "val": {"loss": "NaN"}}}\n',
        [(1, 2.5)],
        [(1, math.nan)],
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_table_without_a_step_is_numbered_by_its_epochs(name: str, tmp_path: Path) -> None:
    text, steps, evaluations = FILES[name]
    (tmp_path / name).write_text(text)
    recordings.import_recording(tmp_path / name, tmp_path / "run")
    (process,) = tracelyze.load(tmp_path / "run").processes
    losses = process.steps["loss"]
    known = ~(losses != losses)
    assert list(zip(process.steps["step"][known], losses[known], strict=True)) == steps
    assert repr([(float(r["after_step"]), float(r["loss"])) for r in process.evals.records()]) == repr(
        [(float(step), float(loss)) for step, loss in evaluations]
    )


def test_rewards_are_read_from_lines_without_a_loss(tmp_path: Path) -> None:
    """As verl prints them: they fall to nothing while the policy moves away from its reference."""
    lines = [
        f"(TaskRunner pid=12345) step:{n} - actor/entropy:0.9 - actor/ppo_kl:{0.001 * n if n < 70 else 3.0:.4f} - "
        f"training/global_step:{n} - critic/rewards/mean:np.float64({0.1 + n / 200 if n < 70 else 0.02:.4f}) - "
        f"timing_s/step:60.2\n"
        for n in range(1, 121)
    ]
    (tmp_path / "verl.log").write_text("".join(lines))
    diagnosis = tracelyze.diagnose(tmp_path / "verl.log")
    assert [finding.rule for finding in diagnosis.findings] == ["reward-collapse"]


def test_a_table_of_stable_baselines_is_a_step() -> None:
    rows = [("rollout/", ""), ("   ep_rew_mean", "21.5"), ("time/", ""), ("   total_timesteps", "2048"), ("loss", "3")]
    table = ["-" * 30, *(f"| {name:<16} | {value:<8} |" for name, value in rows), "-" * 30, "Done"]
    assert list(blocks.joined(["Using cpu", *table])) == [
        "Using cpu",
        "step: 2048, rollout/ep_rew_mean: 21.5, time/total_timesteps: 2048, time/loss: 3",
        "Done",
    ]


def test_a_duration_in_milliseconds_is_told_in_seconds(tmp_path: Path) -> None:
    """As Megatron-LM tells it: days of training would be made of minutes. A log says nothing about checkpoints."""
    log = tmp_path / "megatron.log"
    log.write_text(
        "".join(
            f" iteration {n:>8}/   40000 | consumed samples: {n * 512:>12} | elapsed time per iteration (ms): 2134.5 | "
            f"learning rate: 1.0E-04 | global batch size:   512 | lm loss: {10 - n / 100:.6E} | grad norm: 1.2 |\n"
            for n in range(1, 401)
        )
    )
    recordings.import_recording(log, tmp_path / "run")
    (process,) = tracelyze.load(tmp_path / "run").processes
    assert process.steps["seconds"][0] == pytest.approx(2.1345)
    assert not tracelyze.diagnose(log).findings


@pytest.mark.parametrize("name", ["train/CrossEntropyLoss", "loss/train/total", "ce_loss"])
def test_more_names_of_the_training_loss(name: str) -> None:
    assert (columns.meaning(name).column, columns.meaning(name).phase) == ("loss", "train")


def test_the_class_of_an_exception_is_said_once(tmp_path: Path) -> None:
    """Also where the log writes it with its module."""
    (tmp_path / "train.log").write_text(
        "step: 1 loss: 2.5\nstep: 2 loss: 2.4\nTraceback (most recent call last):\n"
        '  File "/home/user/train.py", line 9, in <module>\n    loss.backward()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 892.00 MiB.\n"
    )
    recordings.import_recording(tmp_path / "train.log", tmp_path / "run")
    assert tracelyze.diagnose(tmp_path / "run").run.exit.detail.count("OutOfMemoryError") == 1
