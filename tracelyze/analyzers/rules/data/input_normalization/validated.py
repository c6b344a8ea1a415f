"""Validation inputs that were not prepared as those of the training: what shows it, and where to change it."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import guessing, pictures, timing
from tracelyze.analyzers.rules.data.input_normalization import as_loaded, two_ranges
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Confidence, Location

_WORSE: Final = 1.5  # times the training loss: dropout and a second source of data make less of a difference at first
_CODE: Final = "x = (x - mean) / std  # in {side}, too: the mean and std of the training set"


class _Told(NamedTuple):
    """The confidence, and the lowest validation loss beside the loss of a guess, where both are known."""

    confidence: Confidence
    best: float | None
    guess: float | None


def finding(optimization: Optimization, rule: str, limits: Limits) -> Finding | None:
    """Training and validation inputs of two ranges, where the model is seen to get them so, or to be bad at it."""
    process = optimization.process
    ranges = two_ranges.found(process, limits)
    told = _told(optimization, ranges) if ranges is not None else None
    if ranges is None or told is None:
        return None
    row = _first_pass(process, ranges.loader)
    made = _loader(process, ranges.loader)
    seen, place = validation.place(process, row), process.site(made.get("made_at")) or validation.loop_of(process, row)
    begin = int(np.nan_to_num(process.evals["after_step"][row]))
    training, validated = ranges.training, ranges.validation
    looks = plural(training.batches, "training batch", "training batches")
    other = "training" if ranges.raw == "validation" else "validation"
    worse = ""
    if told.best is not None and told.guess is not None and told.best >= told.guess:
        worse = f" The lowest validation loss, {number(told.best)}, is no better than that of a guess."
    return Finding(
        rule=rule,
        severity="critical" if worse else "warning",
        confidence=told.confidence,
        title="Validation inputs are not normalised like training inputs: "
        f"mean {_rounded(validated.mean)}, not {_rounded(training.mean)}",
        summary=(
            f"The inputs (field {ranges.field}) ran from {number(training.low)} to {number(training.high)} in {looks} "
            f"(mean {_rounded(training.mean)}, deviation {number(training.std)}), and from {number(validated.low)} to "
            f"{number(validated.high)} in {plural(validated.batches, 'validation batch', 'validation batches')} (mean "
            f"{_rounded(validated.mean)}, deviation {number(validated.std)}). What the model has learned holds for "
            f"the first range: validation says nothing about it.{worse}"
        ),
        fix=f"Prepare {ranges.raw} inputs as {other} inputs are: subtract the same mean and divide by the same "
        "standard deviation, those of the training set.",
        fix_code=_CODE.format(side=ranges.raw),
        first_step=begin,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("ranges of training and validation", ranges.ratio, "", limits["tied"], limits.source("tied")),
            Evidence("deviation of the validation inputs", validated.std, "", training.std, "that in training"),
            Evidence("mean of the validation inputs", validated.mean, "", training.mean, "that in training"),
            *([Evidence("lowest validation loss", told.best, "", told.guess, "that of a guess")] if worse else []),
        ],
        traits=frozenset({"two-ranges"}),
        location=place or seen,
        seen_at=seen if place is not None else None,
        charts=pictures.loss(optimization, [Mark(float(begin), "first validation")]),
        false_alarm="A validation set that is meant to lie in another range: extrapolation, another sensor.",
    )


def _rounded(mean: float) -> str:
    return number(round(mean, 1) + 0.0)


def _told(optimization: Optimization, ranges: two_ranges.Ranges) -> _Told | None:
    """None where the loops bring both to one range on the way, or validation is as good as training."""
    process = optimization.process
    loaded = True if ranges.loader < 0 else _unchanged(process)
    after, losses, _samples = validation.curve(process)
    known = losses[np.isfinite(losses)]
    classes = guessing.classes(optimization)
    guess = log(classes) if classes else None
    best = float(known.min()) if len(known) else None
    ratio = _against_training(optimization, after, losses)
    if loaded is False or (ratio is not None and ratio < _WORSE) or (loaded is None and ratio is None):
        return None
    sure = loaded is True and best is not None and guess is not None and best >= guess
    return _Told("certain" if sure else "likely", best, guess)


def _against_training(optimization: Optimization, after: Any, losses: Any) -> float | None:
    """The median validation loss in terms of the training loss before it; None where either is not known, or negative
    ones have no ratio."""
    before = validation.training_before(optimization, after) if len(after) else np.empty(0)
    both = np.isfinite(before) & np.isfinite(losses) if len(before) else np.zeros(0, dtype=bool)
    return float(np.median(losses[both] / before[both])) if both.any() and (before[both] > 0).all() else None


def _unchanged(process: Process) -> bool | None:
    training = as_loaded.unchanged(process, process.locations("training-call"))
    evaluated = as_loaded.unchanged(process, _evaluating(process))
    if False in (training, evaluated):
        return False
    return None if None in (training, evaluated) else True


def _evaluating(process: Process) -> list[Location]:
    sites = np.unique(process.evals["site"][validation.passes(process)])
    return [place for one in sites if (place := process.site(one)) is not None]


def _first_pass(process: Process, loader: float) -> int:
    loaders = np.nan_to_num(process.evals["loader"], nan=-1.0)
    return int(np.argmax(validation.passes(process) & (loaders == loader)))


def _loader(process: Process, loader: float) -> dict[str, Any]:
    return next((row for row in process.loaders.records() if row["loader"] == loader), {})
