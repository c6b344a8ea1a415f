"""learning-rate-too-high: the loss blew up from the first steps, or when the rate was raised beyond what was stable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import rates, schedules, style
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.optimization.rates import TooHigh
    from tracelyze.analyzers.recorded.run import Optimization, Process


def check(process: Process, limits: Limits) -> Outcome:
    """Loss against learning rate, of the only optimizer."""
    optimization = process.optimizations[0]
    reason = style.unjudgeable(optimization)
    if reason:
        return Skipped(reason)
    seen = rates.curve(optimization)
    if len(seen.loss) < rates.FEWEST_LOSSES:
        return Skipped(f"{plural(len(seen.loss), 'finite loss')} with a known learning rate: too few to judge")
    found = rates.from_the_start(optimization, seen, limits) or rates.raised(seen, limits)
    found = found or rates.stuck(optimization, seen, limits) or rates.overwritten(optimization, seen, limits)
    if found is None:
        return Passed("the loss did not blow up, nor stay at its start after updates as large as the weights")
    return [_finding(optimization, found, limits)]


def _finding(optimization: Optimization, found: TooHigh, limits: Limits) -> Finding:
    begin, raised = timing.step_at(optimization, found.first), timing.step_at(optimization, found.raised)
    affected = np.zeros(len(optimization.steps), dtype=bool)
    affected[found.first :] = True
    marks = [Mark(float(raised), "rate raised" if found.stable else "first step")]
    rate, name = number(found.rate), optimization.facts.get("name") or "the optimizer"
    code = schedules.with_rate(optimization, found.rate / 10)
    if found.stable:
        title = f"A learning rate of {rate} is too high: the loss blew up when it was raised"
        summary = (
            f"Up to a rate of {number(found.stable)} the loss fell, to {number(found.lowest)}. From step {raised} "
            f"on the rate was higher, up to {rate}, and the loss rose to {number(found.highest)}. A step that "
            "overshoots the valley lands higher on its other side, and each one lands higher still."
        )
        fix = (
            f"Go back to a checkpoint from before step {raised}. Change what raises the rate so that it stays at "
            f"{number(found.stable)} or below; until then cap the rate each time after it was changed."
        )
        code = (
            "# right after each scheduler.step(), or wherever the loop sets the rate:\n"
            f'for group in optimizer.param_groups:\n    group["lr"] = min(group["lr"], {found.stable:.2g})'
        )
    elif found.constant:
        title = f"The learning rate of {name}, {rate}, is too high: the model ends with one answer for all"
        summary = (
            f"The first updates changed the weights by up to {number(found.update or 0.0)} times their own size, which "
            "leaves nothing of the weights as they were drawn. The loss then settled where it stays: the predictions "
            "hardly differ from sample to sample, as with dead or saturated units, and what comes later does not "
            "recover."
        )
        fix = "Try a tenth and a hundredth of the rate, from fresh weights."
    elif found.stuck:
        where = "never got below its start" if found.above else "stays near its start"
        title = f"The learning rate of {name}, {rate}, is too high: the loss {where}"
        summary = (
            f"The first updates changed the weights by up to {number(found.update or 0.0)} times their own size. The "
            f"loss went up to {number(found.highest)}, and in the second half of the run it is "
            f"{'no' if found.above else 'hardly'} lower than at the first step. Such a step throws the weights out of "
            "the region in which the model can be trained; what comes after it, dead or saturated units and one answer "
            "to everything, does not recover."
        )
        fix = "Try a tenth and a hundredth of the rate, from fresh weights."
    else:
        when = "grew from the first step" if found.at_once else "blew up before it had settled"
        title = f"A learning rate of {rate} is too high for {name}: the loss {when}"
        summary = (
            f"The loss went from {number(found.lowest)} to {number(found.highest)} without ever having settled, and an "
            f"update changed the weights by {number(found.update or 0.0)} times their own size. Nothing was learned: a "
            "step that overshoots the valley lands higher on its other side, and each one lands higher still."
        )
        fix = "Try a tenth and a hundredth of the rate. If inputs or targets are in the hundreds, normalise them first."
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=title,
        summary=summary,
        fix=fix,
        fix_code=code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, found.first),
        evidence=[
            Evidence("highest learning rate", found.rate, "", limits["raised"] * found.stable if found.stable else None,
                     limits.source("raised") if found.stable else ""),
            *([Evidence("rate while the loss fell", found.stable)] if found.stable else []),
            *([Evidence("update per weight, median over tensors", found.update, "", limits["update"],
                        limits.source("update"))] if found.update is not None else []),
            Evidence("highest loss", found.highest),
            Evidence("lowest loss", found.lowest),
        ],
        cost=timing.cost_of(optimization, affected),
        location=schedules.rate_location(optimization, found.stable is not None),
        seen_at=optimization.step_location,
        charts=pictures.loss(optimization, marks) + pictures.grad_norm(optimization, marks),
        false_alarm="A search for the highest stable rate, which is meant to end like this.",
    )  # fmt: skip


RULE = Rule(
    id="learning-rate-too-high",
    family="loss",
    severity="critical",
    title="The learning rate is too high",
    about="Gradient descent is stable up to a rate of two over the curvature, and diverges geometrically beyond it.",
    check=check,
    verify="Record the run again: the loss falls from the first steps on.",
    absent="The run has no learning rate.",
    needs=(("steps.loss", "steps.lr"),),
    thresholds=(
        Threshold("blow_up", 100, "", "a bad start loses a factor of 2 to 5 in its first steps, not of 100"),
        Threshold("early", 100, "steps", "what blows up later had a time in which it was stable"),
        Threshold("rises", 0.8, "share", "of the steps until then; of noise half rise, with 3 steps an eighth all do"),
        Threshold("update", 0.1, "", "a hundred times the usual 1e-3; sound trainings stay below after step 10"),
        Threshold("looks", 2, "measurements", "the very first update of a layer that begins at zero is large as well"),
        Threshold("regained", 0.95, "share", "of the first loss: a model that learns anything is below it in the end"),
        Threshold("large", 0.2, "", "two first updates of a fifth of the weights leave nothing of the initialisation"),
        Threshold(
            "grown", 5, "", "times the weights as drawn: four fifths of what they are then came from the updates"
        ),
        Threshold("hardly", 0.85, "share", "of the first loss: a guess is 5 to 15% better than weights as drawn"),
        Threshold("burst", 10, "", "times the first loss: twice what a bad start loses in its first steps"),
        Threshold("ever", 0.6, "share", "of the first loss: what was below it had begun to learn, and lost it again"),
        Threshold("raised", 2.0, "", "derived: the limit of stability is sharp, curvature itself drifts by less"),
        Threshold("ended", 10, "", "of the smoothed minimum in the last two losses; noise seldom reaches twice that"),
    ),
    not_when="Several optimizers, acting models, losses below zero, a loss that is lost without having risen before.",
    references=("https://arxiv.org/abs/2103.00065",),
)
