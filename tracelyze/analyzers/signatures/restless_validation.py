"""Validation in train mode, seen in curves alone: validation losses fluctuate far more than training explains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.computed.optimization import style
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Passed, Skipped
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.diagnosis import Location

MIN_PASSES = 10  # the median of eight second differences is the least that shows noise
TURNS = 1 / 3  # of the places where a curve may turn; noise turns at two of three, a trend at hardly any
TOLD = 100  # a larger ratio is that of a curve that hardly moves, and as a number says nothing


@dataclass(frozen=True)
class Restlessness:
    """Noise of the validation curve relative to its level, and over the noise of training at the same steps.

    Both as shares of a level, and training's of the larger of both curves' noise that may be: a training loss of nearly
    zero moves little in its unit, which is no calm.
    """

    relative: float
    ratio: float
    steps: Floats
    samples: float | None
    in_unit: float = 0.0  # the noise of validation over that of training, both in the unit of the loss
    by_unit: bool = False  # whether `ratio` is that

    @property
    def of_units(self) -> Restlessness:
        """The same, with both compared in the unit of the loss."""
        return replace(self, ratio=self.in_unit, by_unit=True)

    @property
    def of_training(self) -> str:
        """What the training loss does meanwhile, to follow "while"."""
        return (
            "the training loss hardly moves"
            if self.ratio > TOLD
            else f"training's moves {number(self.ratio)} times less{', both in the same unit' * self.by_unit}"
        )

    @property
    def shown_ratio(self) -> float | str:
        """The ratio as evidence."""
        return f"over {TOLD}" if self.ratio > TOLD else self.ratio


def _turns(values: Floats) -> float:
    """At which share of the places where it could do so a curve turns from rising to falling, or back."""
    moves = np.sign(np.diff(values))
    return float(np.mean(moves[1:] * moves[:-1] < 0)) if len(moves) > 1 else 0.0


def measure(process: Process) -> Restlessness | Passed | Skipped:
    """How much validation jumps from pass to pass, against training's own noise there."""
    steps, losses, samples = validation.curve(process)
    finite = np.isfinite(losses) & np.isfinite(steps)
    steps, losses, samples = steps[finite], losses[finite], samples[finite]
    if len(losses) < MIN_PASSES:
        return Skipped(f"{plural(len(losses), 'validation loss')}: {MIN_PASSES} are needed to tell noise from a trend")
    optimization = process.longest if process.optimizations else None
    if optimization is None or not np.isfinite(optimization.steps["loss"]).any():
        return Skipped("no training loss was recorded to compare the validation with")
    reason = style.unjudgeable(optimization)
    if reason:
        return Skipped(reason)
    if _measures_otherwise(process):
        return Skipped("validation measures something other than the training loss, which may be calmer by nature",
                       "not-applicable")  # fmt: skip
    noise, own = statistics.fluctuation(losses), statistics.fluctuation(validation.training_before(optimization, steps))
    if noise is None or own is None:
        return Skipped("too few training losses between the validations")
    if _turns(losses) < TURNS:
        return Passed("the validation loss follows a trend, and seldom turns")
    known, level = samples[np.isfinite(samples)], abs(statistics.median(losses))
    calm = max(own.relative, own.noise / level) if level > 0 else 0.0
    ratio = noise.relative / calm if calm > 0 else float("inf")
    in_unit = noise.noise / own.noise if own.noise > 0 else float("inf")
    return Restlessness(noise.relative, ratio, steps, float(np.median(known)) if len(known) else None, in_unit)


def _measures_otherwise(process: Process) -> bool:
    """Whether what validations compute is another measure than the training loss: a term of it, or of other functions.

    A squared error beside a loss that ranks, say: how much the one moves says nothing of how much the other should.
    """
    evals, calls = process.evals, process.tables.get("loss_calls")
    if evals.has("loss_is_whole") and (evals["loss_is_whole"][validation.passes(process)] == 0).any():
        return True
    rows = list(calls.records()) if calls is not None else []
    trained = {row["function"] for row in rows if row["training"]}
    measured = {row["function"] for row in rows if row["training"] is not None and not row["training"]}
    return bool(trained) and not measured <= trained


def finding(process: Process, rule: str, fix: str, fix_code: str, limits: Limits) -> list[Finding] | Passed | Skipped:
    """A possible validation in train mode where nothing but the curves is known."""
    seen = measure(process)
    if isinstance(seen, (Passed, Skipped)):
        return seen
    if not (seen.ratio > limits["ratio"] and seen.relative > limits["relative"]):
        return Passed(f"validation losses vary by {percent(seen.relative)} from pass to pass, as training explains")
    optimization = process.longest
    begin = int(seen.steps[0])
    return [
        Finding(
            rule=rule,
            severity="warning",
            confidence="possible",
            title=f"Validation may run in train mode: its loss fluctuates by {percent(seen.relative)}",
            summary=(
                f"From one validation to the next the loss moves by {percent(seen.relative)} of its level, while "
                f"{seen.of_training}. Active dropout or BatchNorm statistics taken from validation batches do that. "
                "Only curves were recorded, so the mode itself is not known."
            ),
            fix=fix,
            fix_code=fix_code,
            first_step=begin,
            last_step=int(seen.steps[-1]),
            evidence=evidence(seen, limits, "ratio"),
            charts=pictures.loss(optimization, [Mark(float(begin), "first validation")]),
            false_alarm="A small validation set, or a metric that is inherently noisy, moves the same way.",
        )
    ]


def evidence(seen: Restlessness, limits: Limits, ratio: str) -> list[Evidence]:
    """Both measures against their limits; `ratio` names that of the second."""
    return [
        Evidence("fluctuation from pass to pass", seen.relative, "share", *limits.against("relative"), of="level"),
        Evidence("fluctuation over training's own noise", seen.shown_ratio, "", *limits.against(ratio)),
    ]  # fmt: skip


@dataclass(frozen=True)
class Part:
    """The part of a validation loader that a pass takes, where the loader shuffles: the batches that it takes, those it
    has, samples in one, and the line that takes them."""

    taken: int
    batches: int
    size: int
    location: Location | None


def part(process: Process, limits: Limits) -> Part | None:
    """The part of its loader that each validation takes, drawn anew each time; None where it is no small one."""
    evals = process.evals
    rows = validation.passes(process) & np.isfinite(evals["loader"])
    loaders = {row["loader"]: row for row in process.loaders.records()}
    used = [loaders.get(number) for number in np.unique(evals["loader"][rows])]
    row = used[0] if len(used) == 1 else None
    if row is None or not row["shuffled"] or not row["length"] or not row["batch_size"]:
        return None
    taken = float(np.nanmax(evals["forwards"][rows]))
    if not taken * limits["part"] <= row["length"]:
        return None
    return Part(int(taken), int(row["length"]), int(row["batch_size"]), process.site(row["site"]))
