"""A measure is computed once for a process, and again after its tables were forgotten."""

from __future__ import annotations

from dataclasses import replace

from tracelyze.analyzers.computed.once import measured_once
from tracelyze.analyzers.recorded.run import Process

asked: list[str] = []


@measured_once
def steps_of(process: Process) -> int:
    asked.append(process.training)
    return len(process.steps)


def test_a_measure_is_computed_once_and_again_after_the_tables_were_forgotten(make) -> None:
    process = make.process()
    asked.clear()
    assert steps_of(process) == steps_of(process) == len(process.steps)
    assert len(asked) == 1
    process.forget()
    steps_of(process)
    assert len(asked) == 2


def test_a_training_has_measures_of_its_own(make) -> None:
    process = make.process()
    asked.clear()
    steps_of(process)
    steps_of(replace(process, training="training 1 of 2"))
    assert asked == ["", "training 1 of 2"]


def test_rows_belong_to_whoever_asks_for_them(make) -> None:
    process = make.process()
    row = next(process.steps.records())
    row["loss"] = "changed"
    assert next(process.steps.records())["loss"] != "changed"
