"""What is recorded against what the program says of itself, column by column."""

from __future__ import annotations

import itertools
import json
import math
import sys
from typing import Any

import pytest

from tests.collectors.conftest import Collect, program
from tests.collectors.programs.truth import IDIOMS
from tracelyze.analyzers.recorded.run import Process

Rows = list[dict[str, Any]]


def differences(truth: Rows, recorded: Rows, what: str) -> list[str]:
    """Where the recorded rows do not say what the program said, a line each."""
    if len(truth) != len(recorded):
        return [f"{what}: {len(recorded)} rows, {len(truth)} are true"]
    wrong = []
    for number, (told, row) in enumerate(zip(truth, recorded, strict=True)):
        for column, value in told.items():
            if not same(value, row.get(column)):
                wrong.append(f"{what} {number}: {column} is {row.get(column)}, {value} is true")
    return wrong


def same(true: Any, recorded: Any) -> bool:
    if true is None or recorded is None or isinstance(true, (bool, str)):
        return bool(true == recorded)
    return bool(recorded == pytest.approx(true, rel=1e-4, abs=1e-7)) and math.isfinite(recorded)


def plainly(row: dict[str, Any]) -> dict[str, Any]:
    """The row with None in the place of NaN."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}


def compared(process: Process, printed: str) -> dict[str, list[str]]:
    """By idiom, in the order in which the program ran them: what is wrong in this recording of it."""
    assert [row["text"] for row in process.events.records() if row["kind"] == "collector-error"] == []
    steps = [plainly(row) for row in process.steps.records()]
    passes = iter(sorted([plainly(row) for row in process.evals.records()], key=lambda row: row["time_start"]))
    found, optimizer = {}, 0
    for line in printed.splitlines():
        said = json.loads(line)
        wrong: list[str] = []
        for rows in said["steps"]:
            wrong += differences(rows, [row for row in steps if row["optimizer"] == optimizer], f"step of {optimizer}")
            optimizer += 1
        if said["evals"] is None:  # nothing is said of them, nor of those that follow
            passes = iter(())
        own = list(itertools.islice(passes, len(said["evals"] or ())))
        found[said["idiom"]] = wrong + differences(said["evals"] or [], own, "evaluation")
    assert list(passes) == [], "evaluations that the program did not have"
    return found


@pytest.mark.parametrize("idiom", [idiom.__name__ for idiom in IDIOMS])
def test_what_is_recorded_is_what_the_program_did(idiom: str, collect: Collect) -> None:
    done = collect(sys.executable, program("truth.py"))
    assert done.process.returncode == 0, done.process.stderr
    (process,) = done.run.processes
    assert compared(process, done.process.stdout)[idiom] == []
