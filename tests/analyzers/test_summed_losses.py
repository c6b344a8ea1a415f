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


def mean_of(function: str, shape: str, target: str, integer: bool, backwards: int = 1) -> tuple[float, list[str]]:
    """The first loss of an evaluation by a summed loss function of such tensors, and the notes."""
    known = tables("mean", ["sum", "sum"])
    calls: dict[str, list[Any]] = {
        "step": [0, 1, 2, 2],
        "training": [True, True, False, False],
        "reduction": ["mean", "mean", "sum", "sum"],
        "function": [function] * 4,
        "input_shape": [shape] * 4,
        "target_shape": [target] * 4,
        "target_integer": [integer] * 4,
    }
    known["loss_calls"] = Table(schema.table("loss_calls"), MemoryColumns(schema.table("loss_calls"), calls))
    steps = {"batch_size": [100.0] * 3, "backwards": [backwards] * 3, "loader_batches": [1] * 3}
    known["steps"] = Table(schema.table("steps"), MemoryColumns(schema.table("steps"), steps))
    whole, notes = summed_losses.averaged(known)
    return next(iter(whole["evals"].records()))["loss"], notes


@pytest.mark.parametrize(
    ("function", "shape", "target", "integer", "values"),
    [
        ("mse_loss", "100x1x8x8", "100x1x8x8", False, 64),  # pixels
        ("binary_cross_entropy_with_logits", "100", "100", False, 1),
        ("cross_entropy", "100x10", "100", True, 1),  # a class for a sample
        ("cross_entropy", "100x3x24x24", "100x24x24", True, 576),  # a class for a pixel
        ("cross_entropy", "800x40", "800", True, 8),  # eight tokens of a sample, strung together
        ("cross_entropy", "100x10", "100x10", False, 1),  # shares of classes
    ],
)
def test_sums_are_divided_by_what_the_mean_of_training_goes_over(
    function: str, shape: str, target: str, integer: bool, values: int
) -> None:
    loss, notes = mean_of(function, shape, target, integer)
    assert loss == pytest.approx(4.0 / values)
    assert notes == [summed_losses.NOTE if values == 1 else summed_losses.NOTE_OF_VALUES]


def test_two_backwards_of_one_batch_are_no_strung_together_rows() -> None:
    assert mean_of("cross_entropy", "100x10", "100", True, backwards=2)[0] == pytest.approx(4.0)
