"""What is recorded of training loops whose truth is known, and that nothing of theirs changes."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.conftest import environment, program, run_plain
from tests.fork_server import client
from tracelyze.analyzers.recorded.run import Process
from tracelyze.analyzers.recorded.run_directory import load

# Loops in the order in which the program runs them, with the number of optimizers that each makes.
OPTIMIZERS = {
    "plain": 1, "zero_in_place": 1, "zero_by_model": 1, "zero_through_data": 1, "zero_by_new_tensor": 1,
    "never_cleared": 1, "accumulation": 1, "accumulation_never_cleared": 1, "half_cleared": 1,
    "cleared_before_step": 1, "scheduled_with_clip": 1, "validated": 1, "workers": 1, "fp16_scaled": 1,
    "fp16_fused": 1, "bf16": 1, "lbfgs": 1, "gan": 2, "gan_generator_never_cleared": 2, "gradient_penalty": 1,
    "sparse": 2, "teacher": 1, "reentrant": 1, "compiled": 1, "by_hand": 0, "kept_losses": 1, "recurrent": 1,
    "adamw_foreach": 1, "adamw_fused": 1, "differentiable": 24, "tensor_rate": 1, "inside_backward": 1,
    "compiled_step": 0, "schedule_free": 1, "side_by_side": 2, "discarded": 1, "discarded_in_place": 1,
}  # fmt: skip
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Recorded:
    plain: str
    plain_stderr: str
    collected: str
    stderr: str
    process: Process

    def rows(self, loop: str, optimizer: int = 0) -> Rows:
        """Rows of one optimizer of one loop."""
        names = list(OPTIMIZERS)
        index = sum(OPTIMIZERS[name] for name in names[: names.index(loop)]) + optimizer
        return [row for row in self.process.steps.records() if row["optimizer"] == index]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("loops") / "run"
    command = (sys.executable, "-W", "ignore", program("loops.py"))
    plain = run_plain(*command, modules=client.FRAMEWORKS)
    wrapper = [sys.executable, "-m", "tracelyze", "collect", "--out", str(folder), "--"]
    collected = client.shared(client.FRAMEWORKS).run([*wrapper, *command], environment())
    (process,) = load(folder).processes
    return Recorded(plain.stdout, plain.stderr, collected.stdout, collected.stderr, process)


def test_weights_and_random_numbers_are_bit_identical(recorded: Recorded) -> None:
    plain = dict(line.split() for line in recorded.plain.splitlines())
    assert list(plain) == list(OPTIMIZERS)
    assert dict(line.split() for line in recorded.collected.splitlines()) == plain


def test_no_signal_failed(recorded: Recorded) -> None:
    errors = [row for row in recorded.process.events.records() if row["kind"] == "collector-error"]
    assert errors == []
    failed = {name for name, entry in recorded.process.facts["signals"].items() if entry["state"] == "failed"}
    assert failed == set()
    assert messages(recorded.stderr) == messages(recorded.plain_stderr)


def messages(stderr: str) -> list[str]:
    """What others than tracelyze wrote, without the time, process and frame that torch's log puts in front."""
    lines = [line for line in stderr.splitlines() if not line.startswith("[tracelyze]")]
    return [line.rpartition("] ")[2] for line in lines]


HEALTHY = [
    name
    for name in OPTIMIZERS
    if OPTIMIZERS[name]
    and "never_cleared" not in name
    and name not in ("half_cleared", "differentiable", "inside_backward", "schedule_free")
]


@pytest.mark.parametrize("loop", HEALTHY)
def test_healthy_loops_carry_no_gradient(loop: str, recorded: Recorded) -> None:
    for optimizer in range(OPTIMIZERS[loop]):
        rows = recorded.rows(loop, optimizer)
        assert len(rows) >= 12
        assert {row["grads_carried"] for row in rows if not row["skipped"]} == {0}


@pytest.mark.parametrize(
    ("loop", "optimizer", "carried", "parameters"),
    [
        ("never_cleared", 0, 6, 6),
        ("accumulation_never_cleared", 0, 6, 6),
        ("half_cleared", 0, 4, 6),
        ("gan_generator_never_cleared", 0, 0, 2),
        ("gan_generator_never_cleared", 1, 4, 4),
    ],
)
def test_carried_gradients_are_counted(
    loop: str, optimizer: int, carried: int, parameters: int, recorded: Recorded
) -> None:
    rows = recorded.rows(loop, optimizer)
    assert rows[0]["grads_carried"] == 0, "nothing was consumed before the first step"
    assert {row["grads_carried"] for row in rows[1:]} == {carried}
    assert {row["parameters"] for row in rows} == {parameters}


def test_gradients_cleared_before_the_step(recorded: Recorded) -> None:
    rows = recorded.rows("cleared_before_step")
    assert {row["grads_none"] for row in rows} == {6}
    assert {row["grads_cleared"] for row in rows[1:]} == {6}
    assert {row["grads_cleared"] for row in recorded.rows("plain")} <= {0, None}


def test_gradients_cleared_between_micro_batches_are_counted(recorded: Recorded) -> None:
    assert {row["grads_discarded"] for row in recorded.rows("discarded")[1:]} == {6}
    assert {row["grads_discarded"] for row in recorded.rows("discarded_in_place")[1:]} == {6}
    assert {row["grads_discarded"] for row in recorded.rows("accumulation")} <= {0, None}


def test_an_optimizer_that_is_no_torch_class_is_seen_after_others_have_stepped(recorded: Recorded) -> None:
    rows = recorded.rows("schedule_free")
    assert len(rows) >= 12, "from the thirty-second backward on that no optimizer of torch has followed"
    assert {row["grads_carried"] for row in rows} <= {0, None}


def test_optimizers_that_step_inside_backward_are_one(recorded: Recorded) -> None:
    rows = recorded.rows("inside_backward")
    assert [row["step"] for row in rows] == list(range(1, 25))
    assert {(row["backwards"], row["parameters"], row["lr"]) for row in rows} == {(1, 6, 0.05)}
    assert {row["grads_none"] for row in rows} == {None}, "they are gone when backward ends, as they should be"


def test_accumulation_counts_backwards_and_undoes_the_division(recorded: Recorded) -> None:
    rows = recorded.rows("accumulation")
    assert {row["backwards"] for row in rows} == {4}
    assert {row["loss_divisor"] for row in rows} == {4.0}
    assert rows[0]["loss"] == pytest.approx(math.log(3), abs=0.4), "the full loss of three classes, not a quarter of it"
    assert {row["batch_size"] for row in rows} == {64}


def test_several_optimizers_have_their_own_rows(recorded: Recorded) -> None:
    assert {row["backwards"] for row in recorded.rows("gan", 0)} == {2}
    assert {row["backwards"] for row in recorded.rows("gan", 1)} == {1}
    assert [row["step"] for row in recorded.rows("gan", 1)] == list(range(1, 25))


def test_closures_count_every_backward(recorded: Recorded) -> None:
    rows = recorded.rows("lbfgs")
    assert {row["backwards"] for row in rows} <= {1, 2, 3, 4, 5}
    assert rows[0]["loss"] == pytest.approx(math.log(3), abs=0.5)


def test_loss_scale_and_skipped_steps(recorded: Recorded) -> None:
    for loop in ("fp16_scaled", "fp16_fused"):
        rows = recorded.rows(loop)
        assert len(rows) == 24, "a skipped step has its row"
        assert [row["step"] for row in rows if row["skipped"]] == [6]
        assert rows[0]["scale"] == 1024.0
        assert rows[6]["scale"] == 512.0
        assert rows[0]["loss"] == pytest.approx(math.log(3), abs=0.3), "without the factor of the scaler"
        assert math.isinf(rows[5]["loss"])
        assert {row["autocast"] for row in rows} == {1}
        assert rows[0]["grad_norm"] < 10, "without the factor of the scaler"
    assert {row["clipped_scaled"] for row in recorded.rows("fp16_scaled")} == {False}
    assert {row["autocast"] for row in recorded.rows("bf16")} == {2}


def test_the_norm_is_the_one_before_clipping(recorded: Recorded) -> None:
    rows = recorded.rows("scheduled_with_clip")
    assert {row["grad_norm_source"] for row in rows} == {2}
    assert {row["clip_max_norm"] for row in rows} == {0.5}
    assert max(row["grad_norm"] for row in rows) > 0.5
    assert [row["lr"] for row in rows] == sorted((row["lr"] for row in rows), reverse=True)


def test_validation_passes(recorded: Recorded) -> None:
    steps = recorded.rows("validated")
    assert {row["model_in_train"] for row in steps} == {True}
    assert {row["modules_in_train"] for row in steps} == {2}
    start, end = steps[0]["time"], steps[-1]["time"] + 0.5
    passes = [row for row in recorded.process.evals.records() if start < row["time_start"] < end][:6]
    assert len(passes) == 6
    for row in passes:
        assert (row["forwards"], row["samples"], row["losses"]) == (2, 32, 2)
        assert (row["trained"], row["model_in_train"], row["modules_in_train"], row["dropouts"]) == (True, False, 0, 0)
        assert 0 < row["loss"] < 3
        assert row["loader"] not in {step["loader"] for step in steps}


def test_teachers_and_averages_are_not_the_trained_model(recorded: Recorded) -> None:
    steps = recorded.rows("teacher")
    passes = [
        row for row in recorded.process.evals.records() if steps[0]["time"] < row["time_start"] < steps[-1]["time"]
    ]
    assert len(passes) >= 20
    assert {row["trained"] for row in passes} == {False}


def test_graphs_that_are_kept_are_counted(recorded: Recorded) -> None:
    kept = [row["live_graphs"] for row in recorded.rows("kept_losses")]
    assert kept[-1] - kept[0] == 23
    plain = [row["live_graphs"] for row in recorded.rows("plain")]
    assert max(plain) - min(plain) <= 1


def test_loader_waits(recorded: Recorded) -> None:
    rows = recorded.rows("workers")
    loaders = {row["loader"]: row for row in recorded.process.loaders.records()}
    (loader,) = {row["loader"] for row in rows}
    assert loaders[loader]["num_workers"] == 2
    assert loaders[loader]["dataset"] == "TensorDataset"
    assert [row["loader_first"] for row in rows].count(True) == 2, "two epochs"
    assert all(row["loader_wait"] > 0 and row["loader_batches"] == 1 for row in rows)


def test_lines_of_the_script(recorded: Recorded) -> None:
    found = {(row["role"], row["source"]) for row in recorded.process.sites.records()}
    assert ("backward", "F.cross_entropy(model(x), y).backward()") in found
    assert ("step", "optimizer.step()") in found
    assert ("clip", "nn.utils.clip_grad_norm_(model.parameters(), 0.5)") in found
    assert ("loader", "for inputs, targets in valid:") in found
    assert ("forward", "criterion(model(inputs), targets)") in found
    files = {Path(row["file"]).name for row in recorded.process.sites.records() if row["role"] != "sampled"}
    assert files - {"server.py"} == {"loops.py"}  # the server of these tests is the caller of every program


def test_every_signal_fills_columns_that_the_schema_has() -> None:
    from tracelyze import schema
    from tracelyze.collectors.signals import SIGNALS

    claimed: list[str] = [column for signal in SIGNALS for column in signal.columns]
    for column in claimed:
        table, _, name = column.partition(".")
        schema.table(table).column(name)
    # Written losses stand beside those of functions, logged scalars beside those of loggers; any signal notes events.
    several = {"loss_calls", "events", "scalars"}
    alone = [column for column in claimed if column.partition(".")[0] not in several]
    assert len(alone) == len(set(alone)), "one signal per column"
    recorder_fills = {"optimizer", "step", "time", "overhead"}
    assert {f"steps.{c.name}" for c in schema.STEPS.columns if c.name not in recorder_fills} <= set(claimed)
    logs_fill = {"set"}
    assert {f"evals.{c.name}" for c in schema.EVALS.columns if c.name not in logs_fill} <= set(claimed)
