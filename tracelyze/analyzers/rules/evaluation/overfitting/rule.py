"""overfitting: the validation loss rises from its minimum to the end while the training loss goes on falling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.computed.optimization import style
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.evaluation.overfitting import few_drawn, stopping
from tracelyze.analyzers.signatures import evaluated_losses, worse_than_a_guess
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats


def check(process: Process, limits: Limits) -> Outcome:
    """The end of the validation curve against its minimum, and what the training loss did meanwhile."""
    optimization = process.longest
    reason = style.unjudgeable(optimization)
    if reason:
        return Skipped(reason)
    after, losses, _samples = validation.curve(process)
    finite = np.isfinite(after) & np.isfinite(losses)
    after, losses = after[finite], losses[finite]
    if len(losses) < limits["few"]:
        known = plural(len(losses), "validation loss")
        return Skipped(f"{known}: {limits['few']:.0f} are needed to tell a rise from noise")
    if losses.min() <= 0:
        return Skipped("the validation loss reaches zero or below, so a rise cannot be measured as a share of it")
    curves = evaluated_losses.evaluated(process)
    same = curves is not None and len(curves.after) == len(after)
    before = curves.training if curves is not None and same else validation.training_before(optimization, after)
    if len(losses) > 2 * limits["blocks"]:  # medians of blocks: single passes of many hide a slow rise in their noise
        after, losses, before = (_blocks(values, int(limits["blocks"])) for values in (after, losses, before))
    few = len(losses) < limits["passes"]
    seen = (
        _rise_of_few(losses, limits) if few else statistics.rise(losses, sigmas=limits["sigmas"], share=limits["rise"])
    )
    if seen is None and losses.argmin() == len(losses) - 1:
        return Passed("the validation loss ends at its lowest")
    if seen is None:
        ratio = float(np.median(losses[-5:]) / losses.min())
        return Passed(f"the last validation losses are {number(ratio)} times the lowest: no steady rise beyond noise")
    never = worse_than_a_guess.found(optimization)
    if never is not None:
        return Passed(f"{never.said()}: validation never was good, so training for too long has not made it bad")
    parts = before[max(0, seen.lowest - 2) : seen.lowest + 3], before[-5:]
    if not all(np.isfinite(part).any() for part in parts):
        return Skipped("no training loss was recorded between the validations")
    then, now = (float(np.nanmedian(part)) for part in parts)
    if now >= then:
        return Passed("the validation loss rose after its minimum, but the training loss did not fall either")
    return [_finding(optimization, after, seen, (then, now), limits)]


def _blocks(values: Floats, count: int) -> Floats:
    """Medians of consecutive blocks, NaN where a block has no value."""
    parts = np.array_split(values, count)
    return np.array([np.nanmedian(part) if np.isfinite(part).any() else np.nan for part in parts], dtype=np.float64)


def _rise_of_few(losses: Floats, limits: Limits) -> statistics.Rise | None:
    """Of five to nine validations: whether the last four each rose, to well above the minimum."""
    in_a_row, lowest, end = statistics.rises_in_a_row(losses), int(np.argmin(losses)), float(losses[-1])
    margin = limits["clear"] * float(losses[lowest])
    if in_a_row < limits["few"] - 1 or end <= losses[lowest] + margin:
        return None
    return statistics.Rise(float(losses[lowest]), lowest, end, margin)


def _finding(
    optimization: Optimization, after: Floats, seen: statistics.Rise, train: tuple[float, float], limits: Limits
) -> Finding:
    best, last = int(after[seen.lowest]), int(after[-1])
    level = "" if len(after) < limits["passes"] else " (median at the end)"
    share = seen.end / seen.minimum - 1
    wasted = timing.numbers(optimization) > best
    fix, code = stopping.advice(optimization.process, best)
    loop, number_of_epochs = stopping.loop(optimization.process) or (None, None)
    validated = validation.place_after(optimization.process, best)
    source = f"minimum plus the larger of {percent(limits['rise'])} and the noise: {limits.source('sigmas')}"
    few = few_drawn.of(optimization.process, optimization)
    if few is not None:
        fix, code, loop, number_of_epochs = few_drawn.FIX, few.code, few.place or loop, None
    return Finding(
        rule=RULE.id,
        severity="warning" if share >= limits["grave"] else "info",
        confidence="likely",
        title=f"The model overfits from step {best:,} on: validation loss is {percent(share)} above its best"
        if few is None
        else f"The model overfits to {plural(few.different, 'sample')}: its sampler draws the same again and again",
        summary=(
            f"The validation loss was lowest after step {best:,} ({number(seen.minimum)}) and has risen since, to "
            f"{number(seen.end)}{level}, while the training loss fell from {number(train[0])} to {number(train[1])}. "
            "What the model has learned since then does not carry over to new data." + (few.said if few else "")
        ),
        fix=fix,
        fix_code=code,
        first_step=best,
        last_step=last,
        first_second=timing.second_at(optimization, int(np.argmax(wasted))) if wasted.any() else None,
        evidence=[
            Evidence("validation loss at the end", seen.end, "", seen.minimum + seen.margin, source),
            Evidence("lowest validation loss", seen.minimum),
            Evidence("training loss then", train[0]),
            Evidence("training loss at the end", train[1]),
        ],
        cost=timing.cost_of(optimization, wasted),
        location=loop or validated,
        seen_at=validated if loop else None,
        setting=number_of_epochs,
        charts=pictures.loss(optimization, [Mark(float(best), "lowest validation loss")]),
        false_alarm="A classifier may become overconfident while its accuracy still improves: check the accuracy, too.",
    )


RULE = Rule(
    id="overfitting",
    family="evaluation",
    severity="warning",
    title="The model overfits",
    about="When validation gets worse while training keeps improving, the model memorises its training data.",
    check=check,
    settings=("num_train_epochs", "max_epochs"),
    verify="Record the run again: the validation loss no longer rises while the training loss falls.",
    absent="The run has no validation loss.",
    needs=(("evals.loss", "steps.loss"),),
    thresholds=(
        Threshold(
            "sigmas",
            3,
            "",
            "plus sqrt(2 ln E) for E passes: 1 false alarm in 36,000 simulated flat, falling and wandering curves",
        ),
        Threshold("rise", 0.05, "share", "another seed moves the loss of a small validation set by a few percent"),
        Threshold("grave", 0.2, "share", "below a fifth the best and the last weights are hard to tell apart in use"),
        Threshold("few", 5, "passes", "four rises in a row are one in 120 of noise, and the training loss falls, too"),
        Threshold("clear", 0.1, "share", "of so few, twice the rise that is enough of many"),
        Threshold("passes", 10, "passes", "simulation: with fewer, no rise below 60% stands out from 1% of noise"),
        Threshold("blocks", 60, "blocks", "derived: medians of many passes show a slow rise that their noise hides"),
    ),
    not_when="Noise around a flat minimum, a training loss that rises too, several optimizers, negative losses.",
)
