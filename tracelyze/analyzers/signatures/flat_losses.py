"""A loss that stays at a level that is not low: that of a guess, or one without skill in what is evaluated."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import guessing, timing
from tracelyze.analyzers.signatures import evaluated_losses, metrics
from tracelyze.diagnosis import Confidence
from tracelyze.formatting import number, percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rule import Limits

ONE_BATCH = (
    "for _ in range(200):  # the inputs and targets of one batch: its loss must fall to nearly nothing\n"
    "    # the step of your own loop, with all terms of its loss, its scaler and its clipping:\n"
    "    optimizer.zero_grad()\n    loss = criterion(model(inputs), targets)\n    loss.backward()\n    optimizer.step()"
)
"""An example: learning one batch by heart shows that the model and its step are wired up, and no more."""

_CLASSES = (2, 10, 100, 1000)  # of the usual tasks; ln of a large number is near that of its neighbours
_BLOCKS = 10
_BEGIN = 3  # losses: a model that leaves a worse level within a few steps stood elsewhere at first
_SEVERAL = 3  # classes
_WARM = 0.5  # of the largest rate, at the median step: a rate that climbs all the time is half of it there, and no more


@dataclass(frozen=True)
class Flat:
    """A plateau: its level, its first step, the guess that it equals, and a metric that says why. `change`: by how much
    the tenth of the run that is farthest from the guess differs from it; without a guess, how much the loss changed."""

    level: float
    first: int
    guess: float | None
    change: float
    named: str
    summary: str
    confidence: Confidence
    metric: str = ""
    value: float | None = None
    preference: bool = False
    settled: bool = False


def at_a_guess(optimization: Optimization, limits: Limits) -> Flat | None:
    """A training loss of which every tenth equals ln 2 (preference training), or ln of the number of its classes.

    Where no loss was recorded, as in a log, the usual numbers are tried.
    """
    known = np.isfinite(optimization.steps["loss"])
    losses, steps = optimization.steps["loss"][known], timing.numbers(optimization)[known]
    if len(losses) < limits["losses"]:
        return None
    level = statistics.block_medians(losses, _BLOCKS)
    middle = statistics.median(level)
    margins = metrics.metric(optimization.process, "margin")
    preference = margins is not None
    if margins is not None and metrics.rises(margins) and np.subtract(*margins.ends()[::-1]) >= limits["margin"]:
        return None  # on its way
    recorded = None if preference else guessing.classes(optimization)
    trained = recorded is not None and _has_warmed_up(optimization)
    silent = trained and _says_the_same(optimization, limits)
    enough = limits["preference" if preference else "silent" if silent else "recorded" if trained else "steps"]
    long_enough = steps[-1] - steps[0] >= enough
    curves = evaluated_losses.evaluated(optimization.process)
    learned = curves is not None and curves.training[-1] < (1 - limits["standing"]) * middle
    tried = (recorded,) if recorded else guessing.candidates(optimization.process, _CLASSES)
    binary = guessing.is_binary(optimization.process)
    for classes in (2,) if preference else tried:
        guess = log(classes)
        odds = "everything a probability of 0.5" if binary else f"{classes} classes equal odds"
        if long_enough and not learned and (np.abs(level / guess - 1) <= limits["near"]).all():
            why = (
                "A preference loss starts at ln 2, where policy and reference agree, and leaves it with the first "
                "updates that count. Here it never did."
                if preference
                else f"A model that gives {odds} has this loss: it knows nothing of its input."
                + " What it answered to different samples was the same but for rounding, from the start." * silent
            )
            change = float(np.abs(level / guess - 1).max())
            begun = abs(statistics.median(losses[:_BEGIN]) / guess - 1) <= limits["near"]
            named = f", ln {classes}, {'from the first step to the last' if begun else 'in every tenth of the run'}"
            sure: Confidence = "likely" if preference or recorded else "possible"
            return Flat(middle, int(steps[0]), guess, change, named, why, sure, preference=preference)
    return None


def settled(optimization: Optimization, limits: Limits) -> Flat | None:
    """A loss that came down to ln of the number of its classes, and no further, while every validation pass stands at
    it as well, or above: what little it falls below is learned by heart.

    Two classes do not count: what can be said of yes and no is often little, and no fault.
    """
    known = np.isfinite(optimization.steps["loss"])
    losses, steps = optimization.steps["loss"][known], timing.numbers(optimization)[known]
    classes = guessing.classes(optimization)
    if len(losses) < limits["losses"] or not classes or classes < _SEVERAL or not _has_warmed_up(optimization):
        return None
    guess, level = log(classes), statistics.block_medians(losses, _BLOCKS)
    late, floor = level[_BLOCKS // 2 :], (1 - limits["near"]) * guess
    _after, evaluated, _samples = validation.curve(optimization.process)
    if (
        steps[-1] - steps[0] < limits["recorded"]
        or (np.abs(late / guess - 1) > limits["near"]).any()
        or level.min() < floor
        or len(evaluated) < limits["passes"]
        or not np.isfinite(evaluated).all()
        or float(evaluated.min()) < floor
        or statistics.median(evaluated) > (1 + limits["standing"]) * guess
    ):
        return None
    why = (
        f"A model that gives {classes} classes equal odds has this loss: it knows nothing of its input. In "
        f"{len(evaluated)} validation passes the loss was {number(float(evaluated.min()))} at best."
    )
    change, named = float(np.abs(late / guess - 1).max()), f", ln {classes}, in training and validation"
    return Flat(statistics.median(late), int(steps[0]), guess, change, named, why, "likely", settled=True)


def _has_warmed_up(optimization: Optimization) -> bool:
    """Whether the learning rate was at half of its largest value, or more, for half of the run."""
    rates = optimization.steps["lr"]
    rates = rates[np.isfinite(rates)]
    return bool(len(rates)) and statistics.median(rates) >= _WARM * float(rates.max()) > 0


def _says_the_same(optimization: Optimization, limits: Limits) -> bool:
    """Whether the predictions were the same for all samples at every call that was looked at, the first ones too."""
    calls = [row for row in optimization.process.tables["loss_calls"].records() if row["training"]]
    known = [row for row in calls if row["varies"] is not None and row["target_varies"]]
    same = [row for row in known if row["varies"] <= limits["same"] * row["target_varies"]]
    return len(same) == len(known) >= limits["looked"]


def without_skill(process: Process, limits: Limits) -> Flat | None:
    """Evaluated training data whose loss does not improve while word errors or accuracy are no better than a guess."""
    curves = evaluated_losses.evaluated(process)
    if curves is None or len(curves.after) < limits["evaluations"]:
        return None
    losses, count = curves.training, len(curves.training)
    early = statistics.median(losses[count // 4 : max(count // 2, count // 4 + 1)])
    late = statistics.median(losses[-max(1, count // 4) :])
    change = 1 - late / early
    if abs(change) > limits["standing"] or late > limits["better"] * losses.min():
        return None
    seen = _no_skill(process, limits)
    if seen is None:
        return None
    name, value, because = seen
    first = int(curves.after[count // 4])
    summary = (
        f"From step {first:,} to the end the loss of the evaluated training data stands at {number(late)} (it changed "
        f"by {percent(abs(change))}), and {because}: the model has learned nothing of its task."
    )
    return Flat(late, first, None, abs(change), f" from step {first:,} on", summary, "likely", name, value)


def _no_skill(process: Process, limits: Limits) -> tuple[str, float, str] | None:
    """A metric by which the model has no skill: its name, its best value, and a clause that says so."""
    for phase in ("train", "eval"):
        errors = metrics.metric(process, "word_error", phase)
        if errors is not None and len(errors) >= limits["evaluations"]:
            best = float(errors.values.min())
            if best >= limits["word_error"]:
                return f"lowest {errors.name}", best, f"{errors.name} never fell below {number(best)}"
        right = metrics.metric(process, "accuracy", phase)
        if right is not None and len(right) >= limits["evaluations"] and 0 < right.values[0] < 1 / limits["better"]:
            best = float(right.values.max())
            if best < limits["better"] * right.values[0]:
                because = f"{right.name} never rose above {number(best)}, from {number(float(right.values[0]))}"
                return f"highest {right.name}", best, because
    return None
