"""Predictions that are alike in validation and differ in training by nothing but what the model draws.

A variational autoencoder adds noise to its code in training, and often none in validation. A decoder that is told
nothing of the sample follows the noise for long, so that its output differs from sample to sample all the same. The
validation shows that it answers the same to everything, and its loss in training that it is no better there.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls, predictions
from tracelyze.analyzers.computed.data.predictions import Constant
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rule import Limits

_LOOKED_AT: Final = 8  # positions along a dimension, at most, that the deviation of a target is of
_SQUARED: Final = "mse_loss"
_MOSTLY: Final = 0.5  # of the whole loss: the other terms are the smaller part from the start


def find(process: Process, optimization: Optimization, limits: Limits) -> Constant | None:
    """The first line whose predictions are alike in each validation late in the run, while its training explains as
    good as nothing of the targets, and the whole loss no longer falls, or this one in validation."""
    lines = loss_calls.lines(process, predictions.FUNCTIONS)
    pairs = [
        (trained, validated)
        for trained in lines
        for validated in lines
        if trained.training
        and not validated.training
        and trained.function not in predictions.CLASSES
        and validated.function not in predictions.CLASSES
        and (trained.site == validated.site or _only(lines, trained, validated))
    ]
    late = limits["late"] * len(optimization.steps)
    for trained, validated in pairs:
        rows = [row for row in trained.rows if predictions.can_judge(row, limits)]
        at_end = [row for row in rows if row["step"] >= late]
        seen = [row for row in validated.rows if predictions.can_judge(row, limits) and row["step"] >= late]
        if len(rows) < limits["looks"] or not at_end or len({row["step"] for row in seen}) < limits["validations"]:
            continue
        bound = limits["shares"] if validated.function in predictions.SHARES else limits["varies"]
        if not all(row["varies"] < bound * row["target_varies"] for row in seen):
            continue
        if _explained(at_end, seen) > limits["explained"]:
            continue
        before, after = predictions.levels(optimization)
        least = 1 - limits["falls"]
        if abs(after - before) <= least * abs(before) or _stays(seen, least):
            first = predictions.given_up(rows, at_end, optimization, limits, is_best_constant=True)
            return Constant(trained, at_end, bound, None, before, after, first, seen)
    return None


def _only(lines: list[Line], trained: Line, validated: Line) -> bool:
    """Whether the script has a single line that computes this loss in training, and one that does in validation; where
    these are losses of two kinds, whether no other line compares anything of these sizes."""
    if trained.function == validated.function:
        same = [one.training for one in lines if one.function == trained.function]
        return sorted(same) == [False, True]
    sizes = _sizes(trained)
    alike = [one.training for one in lines if _sizes(one) == sizes]
    return _sizes(validated) == sizes and len(sizes) == 1 and sorted(alike) == [False, True]


def _sizes(line: Line) -> set[tuple[int, ...]]:
    """The sizes of a sample in the predictions of a line."""
    return {tuple(loss_calls.sizes(row["input_shape"])[1:]) for row in line.rows}


def _stays(validated: list[Row], least: float) -> bool:
    """Whether the loss in validation no longer moves by this share: another term may still fall."""
    values = [per_value for row in validated if (per_value := _per_value(row)) is not None]
    half = len(values) // 2
    if len(values) < len(validated) or not half:
        return False
    before, after = float(np.median(values[:half])), float(np.median(values[-half:]))
    return abs(after - before) <= least * abs(before)


def _explained(trained: list[Row], validated: list[Row]) -> float:
    """The share of what the targets differ that predictions explain in training, at most; 1 where it is not known.

    Of a squared error it is known from the deviation of the targets. Of others: a loss that is no lower than that of
    one answer to everything, in validation, explains nothing. Predictions explain at most twice the share of the
    targets' deviation by which they differ themselves, as long as that is small: the covariance is no larger.
    """
    known = [(per_value, row) for row in trained if (per_value := _per_value(row)) is not None]
    beside = [per_value for row in validated if (per_value := _per_value(row)) is not None]
    explained = [1.0, 2 * ratio(trained)]
    function = trained[0]["function"]
    if validated[0]["function"] != function:
        beside = []
    if known and function == _SQUARED:
        explained.append(float(np.median([1 - loss / variance(row) for loss, row in known])))
    if known and beside and float(np.median(beside)) > 0:
        explained.append(1 - float(np.median([loss for loss, _ in known])) / float(np.median(beside)))
    return min(explained)


def _per_value(row: Row) -> float | None:
    """The loss as a mean over all values of the prediction; None where it is not one number."""
    if row["value"] is None or row["reduction"] not in ("mean", "sum"):
        return None
    return float(row["value"]) / (prod(loss_calls.sizes(row["input_shape"])) if row["reduction"] == "sum" else 1)


def variance(row: Row) -> float:
    """Mean variance of a value of the target: its deviation is the root of a sum over those that were looked at."""
    looked_at = prod(min(size, _LOOKED_AT) for size in loss_calls.sizes(row["input_shape"])[1:])
    return float(row["target_varies"]) ** 2 / looked_at


def ratio(rows: list[Row]) -> float:
    """The deviation of the predictions over that of the targets."""
    return float(np.median([row["varies"] / row["target_varies"] for row in rows]))


def where(found: Constant) -> str:
    """Which predictions are alike, and when."""
    if found.validated:
        return f"In the validation passes from step {int(found.validated[0]['step']):,} on, the predictions"
    return f"At step {int(found.late[0]['step']) + 1:,}, the predictions in {found.line.where}"


def drawn(found: Constant) -> str:
    """What makes predictions differ in training, where they do not in validation."""
    if not found.validated:
        return ""
    same = found.validated[0]["function"] == found.line.function
    return (
        f"In training they differ by {percent(ratio(found.late))} of it, by what the model draws there (codes, "
        f"dropout){', and the loss is no lower for that' * same}. "
    )


def given_up(found: Constant) -> str:
    """What the term was of the loss at first, where the model learned what the other terms ask for."""
    if found.first is None:
        return ""
    if found.first > _MOSTLY:
        return (
            f" The other terms, {percent(1 - found.first)} of it in the first steps, came down to next to nothing: the "
            "model learned what they ask for, and no more."
        )
    last = "most" if found.validated else "nearly all"
    return (
        f" In the first steps the error of the predictions was {percent(found.first)} of it, and in the end it is "
        f"{last}: the model learned what the other terms ask for, and no more."
    )
