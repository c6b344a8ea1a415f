"""ReduceLROnPlateau cuts the rate at what is no plateau: its mode is the other one, or what it watches is no number."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.rules.updates.learning_rate_schedule.findings import Mismatch
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.computed.schedules.schedulers import Row
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Diff

FEWEST_EPOCHS: Final = 3  # one or two may be a trial of the script
MATCH: Final = 1e-3  # of a value: what is logged may be the mean of batches of unlike size
PERCENT: Final = 100  # derived: an accuracy is a share of one, or of a hundred
ROUNDED: Final = 1000  # a value of three decimals or fewer is a whole number of thousandths, whatever it is
FLOAT: Final = 1.2e-7  # the resolution of float32
MOST_SAMPLES: Final = 2000  # two values that are no shares are whole numbers of one of so many once in 7,000 runs
RAGGED: Final = 0.3  # of a mean: that of batches counts a short last one as much as the others, that of samples less
OF_SCORES: Final = r"(?i)acc|score|f1|auc|iou|dice|map\b|bleu|reward|return|recall|precision"
OF_ERRORS: Final = r"(?i)err|loss|miss|wer\b|cer\b"


def wrong_way(optimization: Optimization, schedulers: Sequence[Row], limits: Limits) -> Mismatch | None:
    """A ReduceLROnPlateau that cuts the rate while what it watches gets better: a loss that falls under "max", or a
    share of right answers that rises under "min"."""
    for row in schedulers:
        first, last = row["watched_first"], row["watched_last"]
        if first is None or last is None or row["steps"] < FEWEST_EPOCHS or not row["lowest_lr"]:
            continue
        if row["lowest_lr"] > limits["cut"] * row["highest_lr"]:
            continue
        falling_loss = row["mode"] == "max" and 0 < last <= limits["better"] * first
        rising_share = row["mode"] == "min" and 0 <= first <= limits["better"] * last <= last <= PERCENT
        rising_share = rising_share and not _is_of_errors(optimization, row)
        a_loss = _is_evaluated_loss(optimization, last)
        if falling_loss and (a_loss or _goes_with_a_loss(optimization, row, limits)):
            watched, right = "a loss", 'Use mode="min" for a value that is to fall, such as a loss.'
        elif rising_share and not a_loss and _are_shares(optimization, (first, last), limits):
            watched, right = (
                "a share of right answers",
                'Use mode="max" for a value that is to rise, such as an accuracy.',
            )
        else:
            continue
        mode = "min" if falling_loss else "max"
        return Mismatch(
            scheduler=row,
            title=f"{row['name']} in mode {row['mode']} cuts the rate while its metric improves",
            what=f"It watches {watched}, which went from {number(first)} to {number(last)}, and takes that for a "
            f"plateau: it cut the rate from {number(row['highest_lr'])} to {number(row['lowest_lr'])}.",
            fix=right + _handed_over(optimization, row),
            code=_example_in_mode(optimization, row, mode),
            diff=_in_mode(optimization, row, mode),
            false_alarm="A metric for which the mode is right after all, such as a loss that is a negated reward.",
            verify="Record the run again: the learning rate is cut only when the watched metric stops improving.",
        )
    return None


def watches_no_number(optimization: Optimization, schedulers: Sequence[Row], limits: Limits) -> Mismatch | None:
    """A ReduceLROnPlateau that cuts the rate because what it watches is NaN, which is never better than the best."""
    for row in schedulers:
        without, cut = row["watched_nonfinite"] or 0, row["lowest_lr"] and row["lowest_lr"] < row["highest_lr"]
        if not cut or without < FEWEST_EPOCHS or without < limits["cut"] * row["steps"]:
            continue
        return Mismatch(
            scheduler=row,
            title=f"{row['name']} cuts the rate because its metric is NaN or infinite",
            what=f"At {without:,} of its {plural(row['steps'], 'step')} it was given NaN or an infinite value. No "
            "such value is better than the best one, so that it takes each for a plateau: it cut the rate from "
            f"{number(row['highest_lr'])} to {number(row['lowest_lr'])}, whatever the training did.",
            fix="Fix what makes the value NaN, and step the scheduler with finite values only.",
            code=f"if math.isfinite(value):  # what {row['name']} watches\n    scheduler.step(value)",
            at_step=True,
            verify="Record the run again: the scheduler gets finite numbers and cuts the rate only at plateaus.",
            first=int(np.argmax(optimization.steps["lr"] < row["highest_lr"])),
        )
    return None


def _handed_over(optimization: Optimization, row: Row) -> str:
    """Where the scheduler's options are, if its line hands them over as a dictionary."""
    own = own_statement.at(optimization.process, optimization.process.site(row["made_at"]))
    call = own.only_call(str(row["name"])) if own is not None else None
    options = [one.value for one in call.keywords if one.arg is None] if call is not None else []
    return f" It is among {own.parsed.text_of(options[0])}: change it there." if own is not None and options else ""


def _example_in_mode(optimization: Optimization, row: Row, mode: str) -> str:
    """The line that makes the scheduler, with the mode above all that a dictionary hands over."""
    own = own_statement.at(optimization.process, optimization.process.site(row["made_at"]))
    call = own.only_call(str(row["name"])) if own is not None else None
    options = [one.value for one in call.keywords if one.arg is None] if call is not None else []
    if own is None or len(options) != 1:
        return f'{row["name"]}(optimizer, mode="{mode}")  # beside what your line hands over'
    return own.dedented(
        own.parsed.with_parts({options[0]: f'{{**{own.parsed.text_of(options[0])}, "mode": "{mode}"}}'})
    )


def _in_mode(optimization: Optimization, row: Row, mode: str) -> Diff | None:
    """The line that makes the scheduler, with this mode; None where `**options` may set it."""
    own = own_statement.at(optimization.process, optimization.process.site(row["made_at"]))
    call = own.only_call(str(row["name"])) if own is not None else None
    if own is None or call is None or any(one.arg is None for one in call.keywords):
        return None
    return own.changed(own.parsed.with_argument(call, "mode", f'"{mode}"', position=1))


def _is_evaluated_loss(optimization: Optimization, value: float) -> bool:
    """Whether an evaluation pass came to this loss."""
    losses = optimization.process.evals["loss"]
    return bool(np.isclose(losses[np.isfinite(losses)], value, rtol=MATCH, atol=0.0).any())


def _goes_with_a_loss(optimization: Optimization, row: Row, limits: Limits) -> bool:
    """Whether a value begins and ends near a loss that falls: that of the evaluation passes, or the mean of the steps
    between two steps of the scheduler. The line that steps it speaks of no score."""
    place = optimization.process.site(row["site"])
    if place is not None and re.search(OF_SCORES, place.source):
        return False
    evaluated, trained = optimization.process.evals["loss"], optimization.steps["loss"]
    evaluated, each = evaluated[np.isfinite(evaluated)], max(1, len(trained) // row["steps"])
    ends = [evaluated[[0, -1]]] if len(evaluated) > 1 else []
    if np.isfinite(trained[[*range(each), *range(-each, 0)]]).all():
        ends.append(np.array([trained[:each].mean(), trained[-each:].mean()]))
    watched = (row["watched_first"], row["watched_last"])
    near = [one for one in ends if np.isclose(watched, one, rtol=RAGGED, atol=0.0).all()]
    return any(0 < last <= limits["better"] * first for first, last in near)


def _is_of_errors(optimization: Optimization, row: Row) -> bool:
    """Whether the line that steps the scheduler speaks of errors: a share of them is to fall."""
    place = optimization.process.site(row["site"])
    return place is not None and bool(re.search(OF_ERRORS, place.source))


def _are_shares(optimization: Optimization, values: tuple[float, float], limits: Limits) -> bool:
    """Whether these are whole numbers of samples, as shares (or percentages) of one number of samples: of those that an
    evaluation pass looks at, or, to the last bit, of any other: a pass over a graph may be judged by some nodes."""
    if values[1] > 1 and all(value == round(value) for value in values):
        return False  # percents of any hundred samples, or a count
    shares = tuple(value / PERCENT for value in values) if values[1] > 1 else values
    counts = optimization.process.evals["samples"]
    counts = np.unique(counts[np.isfinite(counts) & (counts >= limits["samples"])])
    if any(all(_is_whole(value * count, MATCH) for value in shares) for count in counts):
        return True
    if any(_is_whole(value * ROUNDED, MATCH) for value in values):
        return False
    any_count = range(int(limits["samples"]), MOST_SAMPLES)
    return any(all(_is_whole(value * count, value * count * FLOAT) for value in shares) for count in any_count)


def _is_whole(value: float, within: float) -> bool:
    return abs(value - round(value)) <= within
