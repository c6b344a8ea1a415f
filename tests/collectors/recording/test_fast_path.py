"""Steps that are skipped leave the same rows."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.collectors.conftest import Collect, needs, program
from tests.fork_server.client import FRAMEWORKS
from tracelyze.analyzers.recorded.run import Process
from tracelyze.collectors.recording.fast_path.path import SKIPPED_STEPS

CADENCES = {
    "gradient_lifecycle": 17,
    "gradient_norm": 19,
    "parameters": 31,
    "activations": 37,
    "batches": 16,
    "loss_inputs": 53,
}
RARE = CADENCES | {"gradient_lifecycle": 41, "gradient_norm": 43, "parameters": 47, "activations": 53}
RARE |= {"inputs_in_use": 106}  # in steps in which outputs of modules are looked at anyway
CLOCKS = {"time", "time_start", "time_end", "seconds", "backward_seconds", "overhead", "loader_wait"}
LINES = {"site", "backward_site", "made_at", "read_site", "compared"}  # numbered as they are noticed
OF_THE_MOMENT = CLOCKS | LINES | {"host_rss", "live_graphs"}
LATE = dict.fromkeys(("autocast", "modules_in_train"), SKIPPED_STEPS)  # columns: noticed so many steps late
# Sampled at a step whose loss is out of the ordinary: on a device, at one of the next.
LATER = {"grad_norm", "grad_norm_source", "grads_zero", "grads_nonfinite", "parameters"}
LATER |= {"grads_none", "grads_carried", "grads_mixed", "loss_is_whole"}  # the last is asked of numbers alone
TABLES = (
    "steps", "evals", "parameters", "activations", "batches", "reach", "models", "optimizers", "links", "loaders",
    "loss_calls", "schedules",
)  # fmt: skip

SHAPES = tuple(table for table in TABLES if table not in ("links", "schedules"))


NOT_READ = {"loss": None, "read_sum": None, "reads": 0}  # columns of evaluations of which not all are looked at


def rows(process: Process, table: str) -> list[dict[str, Any]]:
    left_out = OF_THE_MOMENT | ({"step", "steps"} if table == "reach" else set())  # reports are not to the step
    return [{k: row[k] for k in row if k not in left_out} for row in process.tables[table].records()]


def differences(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[tuple[int, str, str, set[str]]]:
    """Row, column, our value and those that it may have; nan equals nan."""
    return [
        (index, key, repr(one[key]), allowed)
        for index, one in enumerate(ours)
        for key in one
        if (key not in NOT_READ or NOT_READ[key] not in (one[key], theirs[index][key]))
        and repr(one[key])
        not in (allowed := {repr(row[key]) for row in theirs[max(0, index - LATE.get(key, 0)) : index + 1]})
    ]


SAMPLED = {"activations", "batches", "parameters"}


def compare(fast: Process, full: Process, table: str, how: list[str]) -> None:
    """No row differs. Where losses are read later, so is what is sampled at an unusual one."""
    ours, theirs = rows(fast, table), rows(full, table)
    assert ours, table
    if how and table in SAMPLED:
        return
    assert len(ours) == len(theirs), table
    assert [found for found in differences(ours, theirs) if not how or found[1] not in LATER] == [], table


@pytest.mark.parametrize("how", [[], ["--late"]], ids=["on the CPU", "as on a device"])
def test_what_is_skipped_is_as_if_it_had_been_dispatched(collect: Collect, how: list[str]) -> None:
    options = [word for name, every in CADENCES.items() for word in ("--signal", f"{name}=every:{every}")]
    one, other = (
        collect(sys.executable, program("fast_path.py"), *more, options=tuple(options)) for more in (how, ["--full"])
    )
    fast, full = one.run.processes[0], other.run.processes[0]
    assert [row for row in fast.tables["events"].records() if row["kind"] == "collector-error"] == []
    assert len(one.run.processes) == len(other.run.processes)
    for table in TABLES:
        if table != "loss_calls":
            compare(fast, full, table, how)
    # Which loss of many is looked at next is decided as the model is called, which skipped steps do not see.
    looked_at = [rows(process, "loss_calls") for process in (fast, full)]
    assert {one["function"] for one in looked_at[0]} == {one["function"] for one in looked_at[1]}
    assert abs(len(looked_at[0]) - len(looked_at[1])) <= 0.05 * len(looked_at[1])
    skipped, after_change = map(int, one.process.stdout.split())
    assert other.process.stdout.split() == ["0", "0"]
    kept = [[row["live_graphs"] for row in process.tables["steps"].records()] for process in (fast, full)]
    differ = sum(one != another for one, another in zip(*kept, strict=True))
    assert differ <= 0.01 * len(kept[0]), "a look at the stack keeps a frame's tensors for a moment"
    assert skipped > 0.3 * len(rows(fast, "steps")), "the fast path is taken"
    assert after_change > 50, "also when another optimizer has taken over"


@pytest.mark.parametrize("how", [[], ["--late"]], ids=["on the CPU", "as on a device"])
def test_steps_of_several_backwards_and_steps_with_a_closure_are_skipped_as_if_they_were_not(
    collect: Collect, how: list[str]
) -> None:
    options = [word for name, every in CADENCES.items() for word in ("--signal", f"{name}=every:{every}")]
    one, other = (
        collect(sys.executable, program("fast_shapes.py"), *more, options=tuple(options)) for more in (how, ["--full"])
    )
    fast, full = one.run.processes[0], other.run.processes[0]
    assert [row for row in fast.tables["events"].records() if row["kind"] == "collector-error"] == []
    for table in SHAPES:
        compare(fast, full, table, how)
    assert other.process.stdout.split() == ["0"] * 3
    plainly, accumulated, within_steps = map(int, one.process.stdout.split())
    assert plainly > 90
    assert accumulated > 100
    assert within_steps > 150


@pytest.mark.parametrize("what", ["fork", "handler"])
def test_what_comes_in_between_loses_no_step_and_doubles_none(collect: Collect, what: str) -> None:
    run = collect(sys.executable, program("settled.py"), what)
    assert run.process.returncode == 0, run.process.stderr
    said = sorted(tuple(map(int, line.split())) for line in run.process.stdout.splitlines())
    processes = run.run.processes
    assert len(said) == len(processes) == (5 if what == "fork" else 1)
    numbers = [[row["step"] for row in process.tables["steps"].records()] for process in processes]
    if what == "fork":
        assert sorted(map(len, numbers)) == [made for made, _ in said]
        assert all(one == list(range(1, len(one) + 1)) for one in numbers)
    else:  # steps that a handler makes while a backward is called are one with it, and end before the one they cut
        assert 0.99 * said[0][0] <= len(numbers[0]) <= said[0][0]
    assert all(passed > 30 for _, passed in said), "the fast path is taken"
    events = [row for process in processes for row in process.tables["events"].records()]
    assert [row for row in events if row["kind"] == "collector-error"] == []


@pytest.mark.parametrize("what", ["one", "several", "uncleared"])
def test_a_handler_that_trains_inside_of_any_function_of_ours_does_no_harm(collect: Collect, what: str) -> None:
    options = ("--signal", "gradient_lifecycle=every:7", "--signal", "gradient_norm=every:5")
    run = collect(sys.executable, program("handler_trains.py"), what, options=options)
    assert "recording stopped" not in run.process.stderr
    made, interruptions = map(int, run.process.stdout.split())
    assert interruptions > 300
    process = run.run.processes[0]
    assert len(process.tables["steps"]) >= 0.99 * made * (2 if what == "several" else 1)
    assert [row for row in process.tables["events"].records() if row["kind"] == "collector-error"] == []


def test_a_signal_that_fails_in_a_skipped_step_costs_its_columns_only(collect: Collect) -> None:
    run = collect(sys.executable, program("settled.py"), "rates")
    made, passed = map(int, run.process.stdout.split())
    process = run.run.processes[0]
    steps = list(process.tables["steps"].records())
    assert [row["step"] for row in steps] == list(range(1, made + 1))
    assert passed > 200
    assert [row["lr"] is None for row in steps] == [False] * (made - 200) + [True] * 200
    failed = [row["name"] for row in process.tables["events"].records() if row["kind"] == "collector-error"]
    assert failed == ["learning_rate"]


@pytest.mark.parametrize(("what", "skips"), [("device", True), ("mode", False)])
def test_a_default_device_does_not_end_the_fast_path(collect: Collect, what: str, skips: bool) -> None:
    run = collect(sys.executable, program("settled.py"), what)
    made, passed = map(int, run.process.stdout.split())
    process = run.run.processes[0]
    assert [row["step"] for row in process.tables["steps"].records()] == list(range(1, made + 1))
    assert [row for row in process.tables["events"].records() if row["kind"] == "collector-error"] == []
    assert passed > 100 if skips else passed == 0


def test_a_model_that_is_called_and_no_longer_trained_is_noticed(collect: Collect) -> None:
    run = collect(sys.executable, program("settled.py"), "unused")
    evaluated = sum(row["forwards"] for row in run.run.processes[0].tables["evals"].records())
    assert evaluated >= 200 - 2 * SKIPPED_STEPS, "not before the next call that is watched"


@pytest.mark.slow
@pytest.mark.parametrize(
    "loop",
    [
        pytest.param("trainer_accumulation", marks=needs("transformers", "accelerate")),
        pytest.param("lightning", marks=needs("lightning")),
    ],
)
def test_settled_loops_of_frameworks_are_skipped_as_if_they_were_not(loop: str, collect: Collect) -> None:
    options = [word for name, every in CADENCES.items() for word in ("--signal", f"{name}=every:{every}")]
    one, other = (
        collect(
            sys.executable, program("settled_framework.py"), loop, *more, options=tuple(options), modules=FRAMEWORKS
        )
        for more in ([], ["--full"])
    )
    fast, full = one.run.processes[0], other.run.processes[0]
    for table in ("steps", "parameters", "batches"):
        assert len(rows(fast, table)) == len(rows(full, table)) > 10, table
        assert differences(rows(fast, table), rows(full, table)) == [], table
    assert int(one.process.stdout.split()[-1]) > 60


@pytest.mark.parametrize(
    ("loop", "skipped"),
    [
        ("tutorial", 600),
        ("tutorial_with_loader", 150),
        ("together", 200),
        ("one_model", 100),
        ("accumulating", 100),
        ("changing 1", 200),
        ("changing 2", 200),
        ("penalty", 0),  # A call that no backward runs through: none is skipped.
        ("detached", 0),
    ],
)
def test_steps_of_several_optimizers_in_turn_are_skipped_as_if_they_were_not(
    loop: str, skipped: int, collect: Collect
) -> None:
    options = [word for name, every in RARE.items() for word in ("--signal", f"{name}=every:{every}")]
    one, other = (
        collect(sys.executable, program("fast_rounds.py"), *loop.split(), *more, options=tuple(options))
        for more in ([], ["--full"])
    )
    fast, full = one.run.processes[0], other.run.processes[0]
    assert [row for row in fast.tables["events"].records() if row["kind"] == "collector-error"] == []
    for table in TABLES:
        assert len(rows(fast, table)) == len(rows(full, table)), table
        assert differences(rows(fast, table), rows(full, table)) == [], table
    assert int(other.process.stdout) == 0
    assert int(one.process.stdout) >= skipped


@pytest.mark.parametrize(
    ("loop", "skipped"),
    [
        ("policy", 110),
        ("teacher", 60),
        ("average", 150),
        ("abandoned", 60),
        ("sequence", 100),
        ("turns", 0),
        ("unused", 60),
        ("cleared", 60),
        ("twice", 100),
        ("values", 100),
        ("generated", 100),
    ],
)
def test_steps_with_calls_without_autograd_and_of_later_trainings_are_skipped_as_if_they_were_not(
    loop: str, skipped: int, collect: Collect
) -> None:
    options = [word for name, every in RARE.items() for word in ("--signal", f"{name}=every:{every}")]
    one, other = (
        collect(sys.executable, program("fast_loops.py"), loop, *more, options=tuple(options))
        for more in ([], ["--full"])
    )
    fast, full = one.run.processes[0], other.run.processes[0]
    assert [row for row in fast.tables["events"].records() if row["kind"] == "collector-error"] == []
    for table in (*TABLES[:-2], "schedules", "copies", "put_in"):  # which losses are looked at is another matter
        assert len(rows(fast, table)) == len(rows(full, table)), table
        assert differences(rows(fast, table), rows(full, table)) == [], table
    assert int(other.process.stdout) == 0
    assert int(one.process.stdout) >= skipped
