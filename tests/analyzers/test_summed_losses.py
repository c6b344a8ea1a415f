"""Evaluation losses that are sums, beside a training loss that is a mean."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze import schema
from tracelyze.analyzers.recorded import summed_losses
from tracelyze.analyzers.recorded.table import MemoryColumns, Table


def tables(training: str, evaluation: list[str]) -> dict[str, Table]:
    calls: dict[str, list[Any]] = {
        "training": [True] * 2 + [False] * len(evaluation),
        "reduction": [training] * 2 + evaluation,
    }
    evals: dict[str, list[Any]] = {"loss": [400.0, 90.0, None], "losses": [10, 3, 0], "samples": [1000, 300, 128]}
    return {
        "loss_calls": Table(schema.table("loss_calls"), MemoryColumns(schema.table("loss_calls"), calls)),
        "evals": Table(schema.EVALS, MemoryColumns(schema.EVALS, evals)),
    }


def losses(training: str, evaluation: list[str]) -> list[float | None]:
    whole, notes = summed_losses.averaged(tables(training, evaluation))
    found = [row["loss"] for row in whole["evals"].records()]
    assert bool(notes) == (found != [400.0, 90.0, None])
    return found


def test_sums_are_divided_by_the_samples_of_a_call() -> None:
    assert losses("mean", ["sum", "sum"]) == pytest.approx([4.0, 0.9, None])


@pytest.mark.parametrize(
    ("training", "evaluation"), [("mean", ["mean"]), ("sum", ["sum"]), ("mean", ["sum", "mean"]), ("mean", [])]
)
def test_what_is_comparable_or_not_known_stays(training: str, evaluation: list[str]) -> None:
    assert losses(training, evaluation) == [400.0, 90.0, None]
