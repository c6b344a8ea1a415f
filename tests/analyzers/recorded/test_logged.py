"""Losses that a script logged stand in for what the hooks did not see, and for nothing else."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tracelyze import schema
from tracelyze.analyzers.recorded import logged
from tracelyze.analyzers.recorded.run import Process
from tracelyze.analyzers.recorded.table import MemoryColumns, Table
from tracelyze.diagnosis import Exit


def tables(**rows: list[dict[str, Any]]) -> dict[str, Table]:
    found = {}
    for spec in schema.TABLES:
        given = rows.get(spec.name, [])
        columns = {column.name: [row.get(column.name) for row in given] for column in spec.columns}
        found[spec.name] = Table(spec, MemoryColumns(spec, columns))
    return found


def said(time: float, value: float | None, **more: Any) -> dict[str, Any]:
    return {"time": time, "step": 0, "phase": "train", "name": "loss", "value": value} | more


def steps(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"optimizer": 0, "step": n, "time": float(n)} | more for n in range(1, count + 1)]


def completed(**rows: list[dict[str, Any]]) -> dict[str, Table]:
    return logged.completed(tables(**rows))[0]


def test_without_anything_logged_nothing_changes() -> None:
    given = tables(steps=steps(3))
    whole, notes = logged.completed(given)
    assert whole == given
    assert notes == []


def test_steps_are_made_of_logged_losses_where_there_are_none() -> None:
    rows = [said(0.1 * n, 1.0 / n, own_step=10 * n) for n in range(1, 6)]
    rows += [said(0.1 * n, 0.5, own_step=10 * n, name="lr") for n in (2, 4)]
    whole = completed(scalars=rows)["steps"]
    assert whole["step"].tolist() == [10, 20, 30, 40, 50]
    assert whole["loss"].tolist() == [1.0 / n for n in range(1, 6)]
    assert whole["seconds"][1:].tolist() == pytest.approx([0.1] * 4)
    assert whole.known("lr").tolist() == [False, True, False, True, False]
    assert not whole.has("backwards")


def test_losses_of_one_number_are_one_step() -> None:
    rows = [said(float(n), float(n), own_step=n // 2) for n in range(6)]
    whole = completed(scalars=rows)["steps"]
    assert whole["loss"].tolist() == [0.5, 2.5, 4.5]


@pytest.mark.parametrize("numbers", [[5, 6, 1, 2], [1, None, 3, 4]], ids=["restarted", "incomplete"])
def test_numbers_that_do_not_rise_give_way_to_counting(numbers: list[int | None]) -> None:
    rows = [said(float(n), 1.0, own_step=number) for n, number in enumerate(numbers)]
    assert completed(scalars=rows)["steps"]["step"].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(("first", "missing"), [(0, 5), (1, 0)], ids=["before the step", "after the step"])
def test_logged_losses_go_to_their_steps(first: int, missing: int) -> None:
    rows = [said(n + 0.5, float(n), step=n + first) for n in range(5)]
    whole = completed(steps=steps(5), scalars=rows)["steps"]
    assert whole["loss"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert whole["time"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_loss_logged_now_and_then_leaves_the_others_unknown() -> None:
    rows = [said(float(n), math.nan if n == 4 else 1.0, step=n) for n in (2, 4)]
    whole = completed(steps=steps(5), scalars=rows)["steps"]
    assert whole.known("loss").tolist() == [False, True, False, True, False]
    assert math.isnan(whole["loss"][3])


def test_measured_losses_are_left_alone() -> None:
    rows = [said(float(n), 100.0, step=n) for n in range(1, 6)]
    given = steps(5)
    given[0]["loss"] = 1.0
    assert completed(steps=given, scalars=rows)["steps"].known("loss").sum() == 1
    passes = [{"time_start": 1.0, "time_end": 2.0, "after_step": 3, "trained": True, "loss": 0.5}]
    evals = completed(steps=given, evals=passes, scalars=[said(1.5, 9.0, step=3, phase="eval")])["evals"]
    assert evals["loss"].tolist() == [0.5]


def test_passes_take_the_losses_that_were_logged_after_them() -> None:
    passes: list[dict[str, Any]] = [
        {"time_start": n + 0.1, "time_end": n + 0.2, "after_step": n, "trained": n != 2, "forwards": 4}
        for n in (1, 2, 3)
    ]
    rows = [said(n + 0.3 + k / 100, float(n) + k, step=n, phase="eval") for n in (1, 2, 3) for k in (0, 1)]
    evals = completed(steps=steps(3, loss=1.0), evals=passes, scalars=rows)["evals"]
    assert evals["after_step"].tolist() == [1, 2, 2, 3]
    assert evals["loss"][[0, 2, 3]].tolist() == [1.5, 2.5, 3.5]
    assert not evals.known("loss")[1], "a teacher's pass is not the validation"
    assert evals["losses"][[0, 2, 3]].tolist() == [2, 2, 2]
    assert evals["forwards"][[0, 3]].tolist() == [4, 4]


def test_batches_are_found_by_the_step() -> None:
    rows = [said(n + 0.5, 1.0, step=n + 1, batch=f"b{n}") for n in range(5)]
    whole = completed(steps=steps(5, loss=1.0), scalars=rows)
    process = Process("p", {}, whole, Exit("finished"))
    assert logged.batches(process, [0, 3]) == ["b0", "b3"]
    alone = Process("p", {}, completed(scalars=rows), Exit("finished"))
    assert logged.batches(alone, [4]) == ["b4"]
    assert logged.batches(Process("p", {}, completed(steps=steps(5)), Exit("finished")), [1]) == []
