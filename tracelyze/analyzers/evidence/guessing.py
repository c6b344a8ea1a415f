"""The loss of a model that knows nothing: ln(classes), where the training loss is one cross-entropy and nothing else.

Of a binary cross-entropy it is ln 2, for each label: that of equal odds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

_FUNCTIONS = frozenset({"cross_entropy", "nll_loss"})
_BINARY = frozenset({"binary_cross_entropy", "binary_cross_entropy_with_logits"})
_LONGEST = 19  # digits of a size; a damaged file may hold more than Python turns into a number
_SAME = 0.01  # relative: the loss of the step is that of the call, up to a mean over micro-batches


def classes(optimization: Optimization) -> int | None:
    """The number of classes of the training loss; None if the loss is anything but the mean of one cross-entropy."""
    calls = [row for row in optimization.process.tables["loss_calls"].records() if row["training"]]
    sizes = {2 if row["function"] in _BINARY else _second(row["input_shape"]) for row in calls}
    if (
        not all(_has_classes(row) for row in calls)
        or any(row["reduction"] != "mean" for row in calls)
        or len(sizes) != 1
        or len(optimization.process.optimizations) != 1
    ):
        return None
    losses = optimization.steps["loss"]
    seen = [(row["value"], losses[int(row["step"])]) for row in calls if 0 <= int(row["step"]) < len(losses)]
    compared = [pair for pair in seen if pair[0] is not None and math.isfinite(pair[0]) and math.isfinite(pair[1])]
    same = sum(abs(value - loss) <= _SAME * abs(loss) for value, loss in compared)
    count = sizes.pop()
    return count if count is not None and count > 1 and 2 * same > len(compared) else None


def candidates(process: Process, usual: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers of classes that a loss of several terms may have: those of its calls; the `usual` ones where no call
    of a training loss was recorded."""
    calls = [row for row in process.tables["loss_calls"].records() if row["training"]]
    sizes = {2 if row["function"] in _BINARY else _second(row["input_shape"]) for row in calls if _has_classes(row)}
    return tuple(sorted(size for size in sizes if size is not None and size > 1)) if calls else usual


def is_binary(process: Process) -> bool:
    """Whether every training loss that was seen is a binary cross-entropy: its targets may be pixels."""
    calls = [row for row in process.tables["loss_calls"].records() if row["training"]]
    return bool(calls) and all(row["function"] in _BINARY for row in calls)


def _has_classes(row: dict[str, Any]) -> bool:
    return row["function"] in _BINARY or (row["function"] in _FUNCTIONS and bool(row["target_integer"]))


def level(optimization: Optimization) -> tuple[float, str] | None:
    """The loss of equal odds for all classes and its name; None where it is not known, or far from every loss."""
    count = classes(optimization)
    losses = optimization.steps["loss"]
    finite = losses[np.isfinite(losses)]
    if count is None or not len(finite):
        return None
    guess = float(f"{math.log(count):.3g}")  # as a reader says it
    return (guess, f"guessing among {count:,} classes") if float(finite.min()) <= guess <= float(finite.max()) else None


def _second(shape: str | None) -> int | None:
    """The classes of an input of shape [samples, classes, ...] or [classes]."""
    sizes = [int(size) for size in (shape or "").split("x") if size.isdecimal() and len(size) < _LONGEST]
    return sizes[min(1, len(sizes) - 1)] if sizes else None
