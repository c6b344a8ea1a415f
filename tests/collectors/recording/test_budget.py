"""What collecting costs is measured, sampled signals keep within the budget, and the run says what became of them."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.collectors.conftest import Collect, program
from tracelyze.analyzers import diagnose
from tracelyze.collectors.cadence.budget import TIMED_EVERY, Budget, Meter, equal_shares
from tracelyze.collectors.cadence.decimation import GROWTH, PER_E_FOLD, Decimation
from tracelyze.collectors.cadence.loss_sampling import EvaluationPasses
from tracelyze.collectors.signals.signal import Signal
from tracelyze.reports import render


class Expensive(Signal):
    name = "expensive"
    columns = ()
    sampled = True
    every = 10


class Cheap(Expensive):
    name = "cheap"


def steps(
    budget: Budget, meters: dict[Meter, float], step: float, count: int, always: float = 0.0, pause: float = 0.0
) -> None:
    """`count` steps of `step` seconds, in which every meter takes the looks that are due, at its price; a pause in
    every hundredth."""
    spent = now = 0.0
    for number in range(1, count + 1):
        spent += always
        for meter, price in meters.items():
            if meter.due(number):
                meter.sample_seconds += price
                spent += price
        now += step + (pause if number % 100 == 0 else 0.0)
        budget.step_ended(now, spent, number)


def test_only_what_is_expensive_is_turned_down_and_within_the_budget() -> None:
    changed: list[str] = []
    budget = Budget(0.01, {}, lambda meter: changed.append(meter.name))
    expensive, cheap = budget.meter(Expensive), budget.meter(Cheap)
    steps(budget, {expensive: 5e-3, cheap: 2e-5}, step=0.02, count=20_000)
    assert cheap.stride == 10, "as often as it asked for"
    assert set(changed) == {"expensive"}
    assert expensive.decision.turned_down_at is not None
    late = 5e-3 / expensive.stride + 2e-5 / cheap.stride
    assert late <= 0.01 * 0.02 / 2, "half of it: a look costs as much again in evicted caches"
    assert late > 0.01 * 0.02 / 2 / 2, "and it uses what there is"


def test_what_is_always_on_comes_off_first() -> None:
    strides = []
    for always in (0.0, 1.5e-4):
        budget = Budget(0.01, {}, lambda meter: None)
        expensive = budget.meter(Expensive)
        steps(budget, {expensive: 5e-3}, step=0.02, count=10_000, always=always)
        strides.append(expensive.stride)
    assert strides[1] > 2 * strides[0]


def test_all_that_recording_costs_is_within_the_budget() -> None:
    """What is always on evicts the training from the caches, too: it counts twice, as a look does."""
    budget = Budget(0.01, {}, lambda meter: None)
    expensive = budget.meter(Expensive)
    steps(budget, {expensive: 5e-3}, step=0.04, count=20_000, always=1.2e-4)
    assert 2 * (1.2e-4 + 5e-3 / expensive.stride) == pytest.approx(0.01 * 0.04, rel=0.1)


def test_an_evaluation_buys_no_budget() -> None:
    strides = []
    for pause in (0.0, 30.0):
        budget = Budget(0.01, {}, lambda meter: None)
        expensive = budget.meter(Expensive)
        steps(budget, {expensive: 5e-3}, step=0.02, count=5_000, pause=pause)
        strides.append(expensive.stride)
    assert strides[0] == strides[1] > 10


def test_a_fixed_cadence_is_left_alone() -> None:
    budget = Budget(0.0001, {"expensive": 3}, lambda meter: pytest.fail("nothing may change"))
    expensive = budget.meter(Expensive)
    steps(budget, {expensive: 5e-3}, step=0.02, count=500)
    assert (expensive.stride, expensive.samples) == (3, 166)


def test_an_alert_is_looked_at_but_not_for_ever() -> None:
    meter = Budget(0.01, {}, lambda meter: None).meter(Expensive)
    assert meter.due(7, alert=True)
    assert not meter.due(7)
    assert sum(meter.due(number, alert=True) for number in range(1, 10_001) if number % 10) < 1_100


@given(st.lists(st.integers(1, 2000), max_size=6), st.integers(0, 5), st.booleans(), st.sets(st.integers(0, 400)))
def test_decimation_samples_when_its_rule_says_so(
    strides: list[int], first: int, fixed: bool, alerts: set[int]
) -> None:
    """What it remembers to decide quickly changes nothing, whenever the budget changes its mind."""
    meter = Budget(0.01, {"expensive": 10} if fixed else {}, lambda meter: None).meter(Expensive)
    meter.first_steps = first
    decimation, last = Decimation(meter), -1
    for count in range(400):
        if strides and not fixed and count % 70 == 69:
            meter.stride = strides[count // 70 % len(strides)]
        pause = meter.stride if fixed else max(meter.stride, count // PER_E_FOLD)
        grown = not fixed and count >= 10 and count >= GROWTH * last
        expected = count in alerts or count < first or count - last >= pause or grown
        assert decimation.due(count, count in alerts) == expected == meter.sampling
        last = count if expected else last


LATE = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(400):
    if step < 220:
        optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
"""


def test_a_fault_that_begins_late_is_seen_between_two_looks(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text(LATE)
    done = collect(sys.executable, str(script), options=("--signal", "gradient_lifecycle=every:50"))
    (process,) = done.run.processes
    rows = list(process.steps.records())
    looked = {row["step"]: row["grads_carried"] for row in rows if row["grads_carried"] is not None}
    assert not any(looked[step] for step in looked if step <= 220)
    assert len([step for step in looked if 10 < step <= 220]) < 150, "most steps before it are not looked at"
    assert all(looked[step] == 2 for step in range(272, 401)), "and all of them from the first look on"
    assert {row["parameters"] for row in rows} == {2, None}, "where nobody looks, nothing is known"
    assert all(row["parameters"] for row in rows if row["grads_none"] is not None)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=12), st.floats(0, 1e3))
def test_equal_shares_spend_what_there_is(demands: list[float], available: float) -> None:
    level = equal_shares(demands, available)
    given_out = sum(min(demand, level) for demand in demands)
    assert given_out <= available * (1 + 1e-9) or math.isinf(level)
    if math.isinf(level):
        assert sum(demands) <= available * (1 + 1e-9)
    else:
        assert given_out == pytest.approx(available, rel=1e-9, abs=1e-12), "nothing is left over"


def test_the_run_and_the_report_say_what_everything_cost(collect: Collect) -> None:
    done = collect(sys.executable, program("tiny.py"), "400", options=("--signal", "gradient_norm=every:7"))
    (process,) = done.run.processes
    norm = process.signals["gradient_norm"]
    assert (norm["state"], norm["every"], norm["looks"]) == ("on", 7, 58)
    measured = [row["step"] for row in process.steps.records() if row["grad_norm"] is not None]
    assert [step - 1 for step in measured][1:4] == [7, 14, 21], "steps are counted from the first"
    assert process.signals["loss"]["seconds"] > 0
    whole = process.signals["hooks"]["seconds"]
    on_steps = [entry for entry in process.signals.values() if any("steps." in c for c in entry.get("columns", ()))]
    # A timed event stands for TIMED_EVERY: a process that loses the processor just then counts that as often.
    held_up = TIMED_EVERY * 0.02
    assert sum(entry["seconds"] or 0.0 for entry in on_steps) < 1.5 * whole + held_up, "those on other threads aside"
    diagnosis = diagnose(done.folder)
    assert {signal.name for signal in diagnosis.run.signals} >= {"loss", "gradient_norm", "memory"}
    assert "Recording took" in render(diagnosis, "text")


@pytest.mark.parametrize("end", ["finish", "kill"])
def test_a_signal_that_fails_is_off_and_the_report_says_so(collect: Collect, end: str) -> None:
    done = collect(sys.executable, program("tiny.py"), "300", "--break", "learning_rate", f"--{end}")
    assert "Traceback" not in done.process.stderr
    (process,) = done.run.processes
    entry = process.signals["learning_rate"]
    assert entry["state"] == "failed"
    assert "ZeroDivisionError" in entry["reason"]
    assert "Traceback" in entry["traceback"]
    assert process.steps.has("loss"), "the others go on"
    assert "learning_rate is off (ZeroDivisionError" in process.lacks("steps.lr")
    diagnosis = diagnose(done.folder)
    assert any("learning_rate failed" in note for note in diagnosis.run.notes)
    for format in ("text", "html", "json"):
        assert "ZeroDivisionError" in render(diagnosis, format)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--signal", "gradient_nrm=off"), "gradient_norm"),
        (("--signal", "gradient_norm=7"), "=every:N"),
        (("--signal", "loss=every:5"), "recorded at every step"),
        (("--budget", "-1"), "budget"),
    ],
)
def test_wrong_wishes_are_refused(options: tuple[str, ...], said: str, collect: Collect) -> None:
    done = collect(sys.executable, "-c", "pass", options=options)
    assert done.process.returncode == 2
    assert said in done.process.stderr


def test_a_signal_can_be_switched_off(collect: Collect) -> None:
    options = ("--signal", "loss=off", "--no-signal", "memory")
    (process,) = collect(sys.executable, program("tiny.py"), "20", options=options).run.processes
    assert not process.steps.has("loss")
    assert not process.steps.has("host_rss")
    assert process.signals["loss"]["state"] == process.signals["memory"]["state"] == "off"


def test_every_signal_is_documented() -> None:
    from tracelyze.collectors.signals import SIGNALS

    undocumented = [signal.name for signal in SIGNALS if not signal.about or not signal.cost]
    assert undocumented == []


CADENCES = {"gradient_lifecycle": 7, "gradient_norm": 5, "parameters": 11, "activations": 13, "batches": 4}
CLOCKS = {"time", "time_start", "time_end", "seconds", "overhead", "loader_wait"}
OF_THE_MOMENT = CLOCKS | {"backward_seconds", "host_rss", "parameters", "site", "backward_site", "made_at", "read_site"}


def test_a_signal_that_pauses_misses_nothing(collect: Collect) -> None:
    """Clipping, an alert, a second optimizer, micro-batches, a GAN and faults begin while signals are paused."""
    options = [word for name, every in CADENCES.items() for word in ("--signal", f"{name}=every:{every}")]
    one, other = (
        collect(sys.executable, program("paused.py"), *more, options=tuple(options))
        for more in ([], ["--never-paused"])
    )
    paused, never_paused = one.run.processes[0], other.run.processes[0]
    assert float(one.process.stdout) < 4.0, "they pause where two optimizers take turns"
    assert float(other.process.stdout) > 8.0
    assert [row["name"] for row in paused.tables["events"].records() if row["kind"] == "collector-error"] == []
    for table in (
        "steps",
        "evals",
        "parameters",
        "activations",
        "batches",
        "reach",
        "models",
        "optimizers",
        "group_rates",
    ):
        ours, all_dispatched = (
            [{key: row[key] for key in row if key not in OF_THE_MOMENT} for row in one.tables[table].records()]
            for one in (paused, never_paused)
        )
        assert ours == all_dispatched, table
        assert ours, table


def test_evaluations_are_looked_at_to_the_end() -> None:
    """The first loss of a pass, in ever fewer passes: some 50 of 100,000."""
    passes = EvaluationPasses()
    assert [step for step in range(0, 240, 20) for _ in range(5) if passes.begins(step)] == [
        20 * (count - 1) for count in (1, 2, 3, 4, 5, 7, 9, 12)
    ]
    many = EvaluationPasses()
    assert 40 < sum(many.begins(step) for step in range(100_000)) < 60
