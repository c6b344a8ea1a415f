"""Files that other programs wrote: what each is taken for, what is read of it, and what is refused."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tracelyze
from tracelyze.analyzers import load
from tracelyze.errors import InputError
from tracelyze.importing import columns, recordings
from tracelyze.importing.logs import training_log

SHARED = Path(__file__).resolve().parents[3] / "shared" / "recordings"
RECORDINGS = Path(os.environ.get("TRACELYZE_RECORDINGS", SHARED))
# Of each recording: what it is taken for, rows of steps and evals, first and last training loss where it has one.
REAL: dict[str, tuple[str, int, int, tuple[float, float] | None]] = {
    "trainer_state/sft_overfit": ("trainer_state.json", 300, 10, (4.066, 0.2675)),
    "trainer_state/aigoncharov/trainer_state.json": ("trainer_state.json", 30, 186, None),
    "console/sft_overfit.log": ("the console log of the Hugging Face Trainer", 300, 10, (4.066, 0.2675)),
    "logs/torchtitan-1.log": ("a console log of torchtitan", 10, 0, (12.39827, 5.71634)),
    "logs/megatron-1.out": ("a console log", 19, 2, (12.10588, 7.5341)),
    "logs/modded-nanogpt-1.txt": ("a console log of modded-nanogpt", 1875, 16, (10.8258, 3.3139)),
    "lightning/overfit": ("metrics.csv of Lightning", 24, 120, (1.3373, 0.0067)),
    "tensorboard/algoperf-01109": ("TensorBoard event files", 78, 156, (0.5344, 0.009876)),
    "mlflow/nan-sqlite/mlflow.db": ("a store of MLflow", 300, 30, (1.6338, math.nan)),
    "trackio/nan-42": ("a store of Trackio", 600, 30, (1.61115, math.nan)),
    "wandb/overfit-12": ("an offline run of Weights & Biases", 3000, 150, (1.6074, 0.00268)),
    "mlperf/1.txt": ("an MLPerf log", 0, 0, None),
    "sb3/ppo_LunarLander-v2_1_2.monitor.csv": ("monitor.csv of Stable-Baselines3", 0, 0, None),
    "algoperf/01109.csv": ("a log in CSV", 78, 156, (0.5344, 0.009876)),
}


def real(name: str) -> Path:
    path = RECORDINGS / name
    if not path.exists():
        pytest.skip("no recordings: set TRACELYZE_RECORDINGS to the folder that holds them")
    if name.startswith("wandb"):
        pytest.importorskip("wandb", reason="wandb, which reads its own files, is not installed")
    return path


@pytest.mark.starts_programs
@pytest.mark.parametrize("name", REAL)
def test_a_real_recording_is_recognized_and_read(name: str, tmp_path: Path) -> None:
    kind, steps, evals, ends = REAL[name]
    said = recordings.import_recording(real(name), tmp_path / "run").words()
    assert said.startswith(f"read as {kind}")
    (process,) = load(tmp_path / "run").processes
    assert len(process.steps) == steps
    assert len(process.evals) == evals
    if ends is not None:
        loss = process.steps["loss"]
        known = loss[process.steps.known("loss")]
        assert known[[0, -1]] == pytest.approx(ends, rel=0.02, nan_ok=True)


def test_columns_of_reinforcement_and_preference_training_are_kept(tmp_path: Path) -> None:
    recordings.import_recording(real("trainer_state/grpo_ok1"), tmp_path / "grpo")
    (process,) = load(tmp_path / "grpo").processes
    names = process.scalars.text("name")
    assert {"reward", "reward_std", "kl", "entropy", "completions/clipped_ratio", "frac_reward_zero_std"} <= set(names)
    rewards = process.scalars["value"][process.scalars.matches("name", "reward")]
    assert len(rewards) == 160
    recordings.import_recording(real("trainer_state/dpo_healthy"), tmp_path / "dpo")
    (process,) = load(tmp_path / "dpo").processes
    margins = process.scalars.matches("name", "rewards/margins")
    assert int((margins & process.scalars.matches("phase", "train")).sum()) == 100
    assert int((margins & process.scalars.matches("phase", "eval")).sum()) == 10


def test_evaluation_sets_stay_apart(tmp_path: Path) -> None:
    recordings.import_recording(real("trainer_state/aigoncharov"), tmp_path / "run")
    (process,) = load(tmp_path / "run").processes
    assert set(process.evals.text("set")) == {"g0", "g1", "g2", "g3", "g4", "g5"}


def test_how_a_program_ended_is_read_from_its_log(tmp_path: Path) -> None:
    recordings.import_recording(real("logs/torchtitan-2.log"), tmp_path / "memory")
    (process,) = load(tmp_path / "memory").processes
    assert process.exit.kind == "exception"
    event = next(process.events.records())
    assert (event["name"], event["line"]) == ("torch.OutOfMemoryError", 325)
    recordings.import_recording(real("logs/megatron-1.out"), tmp_path / "killed")
    (process,) = load(tmp_path / "killed").processes
    assert process.exit.kind == "signal"
    assert "CANCELLED" in process.exit.detail


@pytest.mark.starts_programs
def test_a_truncated_run_of_wandb_is_read_up_to_its_end(tmp_path: Path) -> None:
    whole = real("wandb/overfit-12") / "run-r0000012.wandb"
    (tmp_path / "cut.wandb").write_bytes(whole.read_bytes()[:400_000])
    recordings.import_recording(tmp_path / "cut.wandb", tmp_path / "run")
    (process,) = load(tmp_path / "run").processes
    assert 500 < len(process.steps) < 1500
    assert process.steps["loss"][0] == pytest.approx(1.6074, rel=1e-4)


MEANINGS = {
    "eval_g_loss": ("loss", "eval", "g"), "eval/value_loss": ("", "eval", ""),
    "loss": ("loss", "train", ""), "train/ctc_loss": ("loss", "train", "ctc"), "Loss/train": ("loss", "train", ""),
    "reduced_train_loss": ("loss", "train", ""), "eval_g0_loss": ("loss", "eval", "g0"),
    "val/loss": ("loss", "eval", ""),
    "Loss/total": ("loss", "train", ""), "Validation/Loss/total": ("loss", "eval", ""),
    "Training/Loss/total": ("loss", "train", ""), "validate_loss": ("loss", "eval", ""),
    "eval_avg_loss": ("loss", "eval", ""),
    "Loss/valid": ("loss", "eval", ""), "test/ctc_loss": ("loss", "test", "ctc"),
    "train_loss_step": ("loss", "train", ""),
    "validation/accuracy": ("", "eval", ""), "policy_loss": ("", "train", ""), "train/value_loss": ("", "train", ""),
    "grad norm": ("grad_norm", "train", ""), "optim/lr": ("lr", "train", ""), "lr-AdamW": ("lr", "train", ""),
    "trainer/global_step": ("step", "train", ""), "_step": ("step", "train", ""), "loss_scale": ("scale", "train", ""),
    "rewards/margins": ("", "train", ""), "eval_rewards/margins": ("", "eval", ""), "_runtime": ("time", "train", ""),
    "lossy": ("", "train", ""), "d_loss": ("", "train", ""), "grad_norm/layer1": ("", "train", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANINGS)
def test_what_a_column_means(name: str) -> None:
    found = columns.meaning(name)
    assert (found.column, found.phase, found.set) == MEANINGS[name]


def test_a_loss_that_ends_early_does_not_hide_the_curve_of_the_run() -> None:
    early: list[dict[str, float | None]] = [{"step": float(n), "loss": 5.0} for n in range(10)]
    rows = early + [{"step": float(n), "train/loss": 3.0} for n in range(10, 1000)]
    assert columns.plan(rows).steps["loss"] == "train/loss"
    assert columns.plan(rows[:50]).steps["loss"] == "loss"


def test_a_training_loss_only_beside_validation_is_an_evaluation() -> None:
    rows: list[dict[str, float | None]] = [{"step": float(n), "loss": 5.0} for n in range(100)]
    rows += [{"step": float(n), "train/loss": 3.0, "validation/loss": 4.0} for n in range(0, 100, 10)]
    plan = columns.plan(rows)
    assert plan.steps["loss"] == "loss"
    assert plan.evaluations == {"train/loss": ("train", ""), "validation/loss": ("eval", "")}
    assert columns.plan(rows[100:]).steps["loss"] == "train/loss"


LINES = {
    "iter 10: loss 4.1234, time 123.45ms, mfu 12.3%": {"step": 10, "loss": 4.1234},
    "step 250: train loss 2.1, val loss 2.2": {"step": 250, "train loss": 2.1, "val loss": 2.2},
    "step    1/19560 | loss 11.009 (+nanz)| norm 15.3 (+nanz)| lr 1.0e-06 | 1200 ms": {"step": 1, "loss": 11.009},
    "epoch 0, iteration 9/99 | lr: 4.9e-06 | global_step: 109 | reduced_train_loss: 11.03": {
        "step": 109,
        "reduced_train_loss": 11.03,
    },
    " iteration  100/ 500 | consumed samples: 256 | lm loss: 2.5E+00 | loss scale: 1.0 | grad norm: 1.2 |": {
        "step": 100,
        "lm loss": 2.5,
        "grad norm": 1.2,
    },
    "Epoch [1/10], Step [100/600], Loss: 0.3421": {"step": 100, "Loss": 0.3421},
    "global_step=1,200 train/loss=nan": {"step": 1200, "train/loss": math.nan},
    "Epoch 0: 1%| 10/1000 [00:30<5:00, reduced_train_loss=10.9, global_step=9.000, lr=1e-4]": {
        "step": 9,
        "reduced_train_loss": 10.9,
    },
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_a_console_log(line: str) -> None:
    found = training_log.values_of(line)
    assert {name: found[name] for name in LINES[line]} == pytest.approx(LINES[line], nan_ok=True)


def test_lines_by_a_pattern(tmp_path: Path) -> None:
    log = tmp_path / "own.txt"
    log.write_text("".join(f"[{n}] objective={5 / (n + 1):.3f} in 3 s\n" for n in range(80)))
    with pytest.raises(InputError, match="--pattern"):
        recordings.import_recording(log, tmp_path / "run")
    diagnosis = tracelyze.diagnose(log, pattern=r"\[(?P<step>\d+)\] objective=(?P<loss>\S+)")
    assert diagnosis.run.steps == 80
    assert diagnosis.run.path == str(log)
    assert any("read as a text log" in note for note in diagnosis.run.notes)
    with pytest.raises(InputError, match="lacks a group"):
        tracelyze.diagnose(log, pattern=r"(\d+)")
    with pytest.raises(InputError, match="give a regular expression"):
        tracelyze.diagnose(log, pattern="(")


def test_a_step_in_a_line_between_exceptions_was_no_end(tmp_path: Path) -> None:
    failure = 'Traceback (most recent call last):\n  File "train.py", line 7, in main\n    f()\nValueError: no\n'
    log = tmp_path / "log.txt"
    log.write_text("step: 1 loss: 2.0\n" + failure + "step: 2 loss: 1.9\n")
    recordings.import_recording(log, tmp_path / "went-on")
    assert not len(load(tmp_path / "went-on").processes[0].events)
    log.write_text("step: 1 loss: 2.0\n" + failure)
    recordings.import_recording(log, tmp_path / "died")
    assert load(tmp_path / "died").processes[0].exit.kind == "exception"


def test_an_mlflow_file_store(tmp_path: Path) -> None:
    metrics = tmp_path / "mlruns" / "0" / "abc" / "metrics"
    metrics.mkdir(parents=True)
    (metrics.parent / "meta.yaml").write_text("run_id: abc\n")
    (metrics / "loss").write_text("".join(f"{1000 + n} {2.0 if n < 5 else math.nan} {n}\n" for n in range(10)))
    recordings.import_recording(tmp_path / "mlruns", tmp_path / "run")
    (process,) = load(tmp_path / "run").processes
    assert process.steps["loss"][:5].tolist() == [2.0] * 5
    assert all(math.isnan(loss) for loss in process.steps["loss"][5:])
    assert process.steps["time"][-1] == pytest.approx(0.009)


def test_of_two_runs_in_a_store_the_last_is_read_and_the_other_named(tmp_path: Path) -> None:
    store = tmp_path / "project.db"
    with sqlite3.connect(store) as connection:
        connection.execute("CREATE TABLE metrics (id, run_name, timestamp, step INTEGER, metrics)")
        row = ("2026-01-01T00:00:00+00:00", 1, '{"loss": 1.0}')
        connection.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?)", [(1, "a", *row), (2, "b", *row)])
    connection.close()
    said = recordings.import_recording(store, tmp_path / "run").words()
    assert "holds 2 runs; the last one, b, is read, not a" in said


CELL = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=9) | st.binary(max_size=9)
STORES = {
    "mlflow": {
        "metrics": "key, value, run_uuid, step, is_nan, timestamp",
        "runs": "run_uuid, name, status, lifecycle_stage, start_time",
    },
    "trackio": {"metrics": "id, run_name, timestamp, step, metrics"},
}


@pytest.mark.parametrize("kind", STORES)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_cell_of_a_store_may_hold_anything(kind: str, tmp_path: Path, data: st.DataObject) -> None:
    """SQLite holds to no column's type: rows that make no sense are left out, or the store is refused in one line."""
    usual: dict[str, Any] = {
        "key": "loss", "value": 1.0, "run_uuid": "a", "run_name": "a", "step": 1, "is_nan": 0, "name": "a", "id": 1,
        "timestamp": 1 if kind == "mlflow" else "2026-01-01T00:00:00+00:00", "metrics": '{"loss": 1.0}',
        "lifecycle_stage": "active", "start_time": 1, "status": "FINISHED",
    }  # fmt: skip
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    with sqlite3.connect(folder / "store.db") as connection:
        for table, names in STORES[kind].items():
            connection.execute(f"CREATE TABLE {table} ({names})")
            for _ in range(3):
                row = [data.draw(st.just(usual[name]) | CELL) for name in names.split(", ")]
                connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    connection.close()
    with contextlib.suppress(InputError):
        recordings.import_recording(folder / "store.db", folder / "run")


DAMAGED = (
    "mlflow/nan-sqlite/mlflow.db",
    "console/sft_overfit.log",
    "logs/megatron-1.out",
    "lightning/overfit/metrics.csv",
)


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"no recordings in {RECORDINGS}")
@pytest.mark.parametrize(
    "name", [*DAMAGED, "trainer_state/sft_overfit/trainer_state.json", "hangs/gpu_error_1st/_dump_0"]
)
def test_a_damaged_recording_is_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    whole = (RECORDINGS / name).read_bytes()
    chance = random.Random(name)
    for number in range(6):
        damaged = bytearray(whole[: chance.randrange(len(whole))] if number % 2 else whole)
        for _ in range(chance.choice((1, 20, 400))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        file = tmp_path / str(number) / Path(name).name
        file.parent.mkdir()
        file.write_bytes(damaged)
        refusals = []
        try:
            recordings.import_recording(file, tmp_path / f"run{number}")
        except InputError as refused:
            refusals.append(str(refused))
        assert all("\n" not in said and str(file) in said for said in refusals)


UNREADABLE: dict[str, bytes] = {
    "binary.bin": bytes(range(256)),
    "empty.log": b"",
    "prose.txt": b"Once upon a time\n",
    "picture.png": b"\x89PNG\r\n\0",
    "other.db": b"SQLite format 3\x00",
    "deep.json": b"[" * 100_000,
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(UNREADABLE[name])
    with pytest.raises(InputError) as refused:
        tracelyze.diagnose(file)
    assert "\n" not in str(refused.value)
    assert str(file) in str(refused.value)


def test_an_unknown_folder_is_told_what_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("nothing here")
    with pytest.raises(InputError, match=r"not a folder that can be read; .*`tracelyze import formats`"):
        tracelyze.diagnose(tmp_path)


def test_a_folder_of_runs_is_told_from_a_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"a folder of 2 runs; give one of them, such as .*b$"):
        tracelyze.diagnose(tmp_path)


def test_nothing_is_left_of_a_recording_that_was_only_diagnosed(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    state = {"log_history": [{"step": n, "loss": 2.0 / n} for n in range(1, 80)], "global_step": 79}
    (tmp_path / "checkpoint-79").mkdir()
    (tmp_path / "checkpoint-79" / "trainer_state.json").write_text(json.dumps(state))
    assert tracelyze.diagnose(tmp_path).run.steps == 79
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
def test_what_lightning_writes_is_read(tmp_path: Path) -> None:
    loggers = pytest.importorskip("lightning.pytorch.loggers", reason="lightning is not installed")
    logger = loggers.CSVLogger(str(tmp_path), name="lightning_logs")
    for step in range(100):
        logger.log_metrics({"train_loss": 2.0 / (step + 1)}, step)
        if step % 10 == 9:
            logger.log_metrics({"val_loss": 3.0 / (step + 1)}, step)
    logger.save()
    said = recordings.import_recording(tmp_path / "lightning_logs", tmp_path / "run").words()
    assert said.startswith("read as metrics.csv of Lightning")
    (process,) = load(tmp_path / "run").processes
    assert (len(process.steps), len(process.evals)) == (100, 10)


def test_both_readers_of_event_files_agree(tmp_path: Path) -> None:
    writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    from tracelyze.importing.trackers import tensorboard

    events = writer.EventFileWriter(str(tmp_path))
    for step in range(200):
        value = Summary.Value(tag="train/loss", simple_value=math.nan if step == 150 else 3.0 / (step + 1))
        events.add_event(Event(wall_time=100.0 + step, step=step, summary=Summary(value=[value])))
    events.close()
    (file,) = tmp_path.iterdir()
    theirs = [
        (float(event.step), value.simple_value)
        for event in LegacyEventFileLoader(str(file)).Load()
        for value in event.summary.value
    ]
    rows, damage = tensorboard.read_scalars(file)
    assert not damage
    assert repr([(row["step"], row["train/loss"]) for row in rows]) == repr(theirs)
    shutil.copy(file, tmp_path / "copy")  # told by its content, whatever its name
    assert (
        recordings.import_recording(tmp_path / "copy", tmp_path / "run")
        .words()
        .startswith("read as a TensorBoard event file")
    )


def test_colors_do_not_hide_what_a_log_is(tmp_path: Path) -> None:
    line = "[titan] - INFO - \x1b[31mstep: {:2}  \x1b[32mloss: {:8.5f}  \x1b[38;2;180;60;0mgrad_norm:  1.2\x1b[39m\n"
    (tmp_path / "run.log").write_text("".join(line.format(n, 12.0 / n) for n in range(1, 20)))
    said = recordings.import_recording(tmp_path / "run.log", tmp_path / "run").words()
    assert said.startswith("read as a console log of torchtitan")
    assert len(load(tmp_path / "run").processes[0].steps) == 19


def test_a_folder_of_several_runs_of_wandb_is_its_latest(tmp_path: Path) -> None:
    from tracelyze.importing.trackers import wandb_run

    for name in ("offline-run-1-a", "offline-run-2-b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"run-{name[-1]}.wandb").write_bytes(b"")
    assert wandb_run.find(tmp_path) is None
    (tmp_path / "latest-run").symlink_to("offline-run-2-b")
    assert wandb_run.find(tmp_path) == tmp_path / "latest-run" / "run-b.wandb"


def test_the_training_numbers_the_steps_of_wandb_where_it_can() -> None:
    from tracelyze.importing.trackers import wandb_run

    rows: list[dict[str, float | None]] = [{"_step": float(n), "train/global_step": 10.0 * n} for n in range(20)]
    wandb_run._number_by_the_program(rows)
    assert columns.plan([*rows, {"train/loss": 1.0}]).step == "train/global_step"
    rows = [{"_step": float(n), "train/step": 10.0 * n} for n in range(20)]  # define_metric(..., step_metric=...)
    wandb_run._number_by_the_program(rows)
    assert columns.plan(rows).step == "train/step"
    rows = [{"_step": float(n), "step": float(n % 5)} for n in range(20)]  # that of an epoch numbers nothing
    wandb_run._number_by_the_program(rows)
    assert "_step" in rows[0]
