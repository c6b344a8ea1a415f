"""Whether predictions differ between samples: their deviation from sample to sample, against that of the targets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.rule import Limits, Threshold

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Optimization, Process

CLASSES = ("cross_entropy", "nll_loss")
SHARES = (*CLASSES, "binary_cross_entropy", "binary_cross_entropy_with_logits")  # compared as probabilities
FUNCTIONS = (
    "cross_entropy",
    "nll_loss",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    loss_calls.WRITTEN_OUT,  # a squared or absolute error
)
THRESHOLDS = (
    Threshold("varies", 0.1, "share", "derived: its square, a hundredth, is the variance that is explained"),
    Threshold("shares", 0.05, "share", "derived, of class shares: its square, 0.25%, is the variance explained"),
    Threshold("classes", 20, "classes", "of many, the frequencies alone take hundreds of steps to learn"),
    Threshold("looks", 8, "measurements", "without them it is not known how much targets differ"),
    Threshold("late", 0.4, "share", "of the run: the first part of a long training may look so"),
    Threshold("steps", 150, "steps", "the first steps begin with nearly constant outputs"),
    Threshold("falls", 0.9, "share", "last fifth of the run against the third: less is noise"),
    Threshold("swamped", 0.02, "share", "of the whole loss: terms that are meant to count begin at 5 to 10%"),
    Threshold("begun", 0.5, "share", "of the whole loss: the other terms are most of it"),
    Threshold("left", 0.95, "share", "of the whole loss: the other terms are next to nothing"),
    Threshold("learned", 0.1, "share", "of what the other terms were: a tenth is left of them, and all of this one"),
    Threshold("validations", 3, "validation passes", "late in the run: one or two may be odd"),
    Threshold("explained", 0.2, "share", "of what targets differ: the positions looked at differ from all by as much"),
    loss_calls.CALLS,
    Threshold("ignored", 0.5, "share", "of the targets: most of them have to count"),
)


@dataclass(frozen=True)
class Constant:
    """A line whose predictions hardly differ, its measurements late in the run, and the share of the targets' deviation
    below which they were. `part`: its share in the whole loss, where another term swamps it; else `before` and `after`,
    the whole loss in the third and in the last fifth of the run. `first`: its share in the first steps, where other
    terms came down to next to nothing: from most of the loss then, or while this one fell by nothing. `validated`: the
    measurements in validation, where predictions hardly differ there alone."""

    line: Line
    late: list[Row]
    bound: float
    part: float | None = None
    before: float = float("nan")
    after: float = float("nan")
    first: float | None = None
    validated: list[Row] = field(default_factory=list)


def constant(process: Process, optimization: Optimization, limits: Limits) -> tuple[Constant | None, int]:
    """The first line whose predictions are one answer to everything while its loss no longer falls, and how many lines
    could be judged up to it."""
    judged = 0
    for line in (one for one in loss_calls.lines(process, FUNCTIONS) if one.training):
        rows = [row for row in line.rows if can_judge(row, limits)]
        if line.function == loss_calls.WRITTEN_OUT and not _predictable(rows):
            continue
        late = [row for row in rows if row["step"] >= limits["late"] * len(optimization.steps)]
        if len(rows) < limits["looks"] or not late:
            continue
        judged += 1
        bound = limits["shares"] if line.function in SHARES else limits["varies"]
        if all(row["varies"] < bound * row["target_varies"] for row in late):
            part = _swamped(rows, late, optimization, limits)
            before, after = levels(optimization)
            if part is not None or abs(after - before) <= (1 - limits["falls"]) * abs(before):
                first = None if part is not None else given_up(rows, late, optimization, limits)
                return Constant(line, late, bound, part, before, after, first), judged
    return None, judged


def can_judge(row: Row, limits: Limits) -> bool:
    """Whether targets of the measurement differ, so that predictions should; most of them have to count, and of tokens
    and other large sets of classes the frequencies alone take long to learn."""
    known = row["varies"] is not None and row["target_varies"] is not None
    shape = loss_calls.sizes(row["input_shape"])
    few = row["function"] not in CLASSES or (len(shape) > 1 and shape[1] <= limits["classes"])
    return bool(known and few and row["target_varies"] > 0 and (row["ignored"] or 0.0) < limits["ignored"])


def chance(rows: list[Row]) -> float:
    """The largest correlation with a target that so many columns, of so many samples, have by chance."""
    return float(np.median([np.sqrt(2 * np.log(row["columns"]) / row["column_rows"]) for row in rows]))


def _predictable(rows: list[Row]) -> bool:
    """Whether an input says something about the target, where both were compared: returns of a stock have no such one,
    and their mean is the right answer."""
    compared = [row for row in rows if row.get("column_rows")]
    return not compared or float(np.median([row["column_same"] for row in compared])) >= chance(compared)


def given_up(
    rows: list[Row], late: list[Row], optimization: Optimization, limits: Limits, *, is_best_constant: bool = False
) -> float | None:
    """Share of the line in the whole loss of the first steps, where other terms came down to next to nothing: those of
    a VAE, or of a bottleneck, whose code says nothing of its sample; else None. `is_best_constant`: it is known that
    the line's own loss came to that of the best constant, from however far above."""
    count = int(limits["looks"])
    begin, end = _shares(rows[:count], optimization), _shares(late, optimization)
    if len(begin) < count or not end:
        return None
    first, last = float(np.median(begin)), float(np.median(end))
    if is_best_constant and 0 < first <= limits["begun"] <= last <= 1 + limits["swamped"]:
        return first
    if not 0 < first < 1 or not limits["left"] <= last <= 1 + limits["swamped"]:
        return None
    if first <= limits["begun"]:
        return first
    rest, left = 1 - min(begin), 1 - last  # of a loss that stays where it is
    values = [row["value"] for row in rows if row["value"] is not None]
    fell = float(np.median([row["value"] for row in late])) < limits["falls"] * float(np.median(values[:count]))
    fell = fell and not is_best_constant
    learned = rest > limits["swamped"] and left <= limits["learned"] * rest and not fell
    return min(begin) if learned else None


def _shares(rows: list[Row], optimization: Optimization) -> list[float]:
    """The shares of these calls in the whole loss of their steps, where both are known."""
    loss = optimization.steps["loss"]
    known = [row for row in rows if row["value"] is not None and row["step"] < len(loss)]
    return [row["value"] / whole for row in known if (whole := float(loss[int(row["step"])])) > 0]


def _swamped(rows: list[Row], late: list[Row], optimization: Optimization, limits: Limits) -> float | None:
    """Share of the line in the whole loss where it is next to nothing, and the line's own loss never fell; else None.

    The whole loss may fall all the same: by the term that swamps this one.
    """
    loss = optimization.steps["loss"]
    known = [row for row in rows if row["value"] is not None and row["step"] < len(loss)]
    before = [row["value"] for row in known if row not in late]
    if not before or len(known) < limits["looks"]:
        return None
    shares = _shares(known, optimization)
    part = float(np.median(shares)) if len(shares) == len(known) else None
    fell = float(np.median([row["value"] for row in late])) < limits["falls"] * float(np.median(before))
    return part if part is not None and 0 < part <= limits["swamped"] and not fell else None


def levels(optimization: Optimization) -> tuple[float, float]:
    """The loss of the third fifth and of the last: what is slow to begin is on its way down between them, and one that
    rises is not that of the best constant."""
    loss = optimization.steps["loss"]
    fifth = len(loss) // 5
    middle, end = loss[2 * fifth : 3 * fifth], loss[-fifth:]
    if not (np.isfinite(middle).any() and np.isfinite(end).any()):
        return float("nan"), float("nan")
    return float(np.nanmedian(middle)), float(np.nanmedian(end))
