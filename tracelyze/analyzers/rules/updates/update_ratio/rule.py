"""update-ratio: steps change the weights by so little that nothing is learned, or by so much that nothing stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import clip_values, ratios, style
from tracelyze.analyzers.computed.schedules import schedulers
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.updates.update_ratio import decay, rates_as_factors
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.optimization.ratios import Ratios
    from tracelyze.analyzers.recorded.run import Optimization, Process


def check(process: Process, limits: Limits) -> Outcome:
    """Updates in norms of the weights, against what became of the loss."""
    optimization = process.optimizations[0]
    reason = style.unjudgeable(optimization)
    if reason:
        return Skipped(reason)
    seen = ratios.of(optimization)
    if len(seen.step) < limits["looks"] or len(optimization.steps) < limits["steps"]:
        return Skipped(
            f"{plural(len(seen.step), 'measurement')} of the weights in {plural(len(optimization.steps), 'step')}"
        )
    taken_away = decay.finding(optimization, RULE.id, limits)
    if taken_away is not None:
        return [taken_away]
    late = seen.update[seen.step > len(optimization.steps) / 2]
    fell = ratios.fall(optimization)
    if len(late) and np.median(late) >= limits["large"] and fell is not None and fell < limits["falls"]:
        return [_large(optimization, float(np.median(late)), limits)]
    way = ratios.hardly_moves(optimization, seen, limits)
    usual = f"a step changes a typical weight tensor by {number(float(np.median(seen.update)))} of its size"
    if way is None:
        return Passed(usual)
    innocent = _why_small(process, optimization, seen, limits)
    return Passed(innocent) if innocent else [_small(optimization, seen, way, fell or 0.0, limits)]


def _why_small(process: Process, optimization: Optimization, seen: Ratios, limits: Limits) -> str:
    """What excuses updates that lead nowhere; empty if nothing does."""
    rate = optimization.steps["lr"][np.isfinite(optimization.steps["lr"])]
    if not len(rate) or rate.max() <= 0:
        return "the learning rate is zero, or not known: see learning-rate-schedule"
    if rate[-1] == rate.max() > limits["climbs"] * np.median(rate[: len(rate) // 2 + 1]):
        return "the run ended in the warm-up of its learning rate"
    if not np.median(seen.gradient) >= limits["gradient"]:
        return "updates are small because gradients are"
    for row in process.tables["loss_calls"].records():
        known = row["training"] and row["varies"] is not None and row["target_varies"]
        if known and row["varies"] >= limits["skill"] * row["target_varies"]:
            return "updates are small, and the model knew its task from the start"
    return ""


def _small(optimization: Optimization, seen: Ratios, way: float, fell: float, limits: Limits) -> Finding:
    ratio, count, most = float(np.median(seen.update)), len(optimization.steps), percent(way).removeprefix("under ")
    rate, highest = (float(of(optimization.steps["lr"])) for of in (np.nanmedian, np.nanmax))
    higher = clip_values.usual_rate(highest, ratio)
    remedy = rates_as_factors.remedy(optimization, higher, highest)
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"Updates are too small: {plural(count, 'step')} move a typical weight tensor by at most {most}",
        summary=(
            f"A step of {rates_as_factors.said(optimization)} changes a typical weight tensor by {number(ratio)} of "
            f"its size; about 1e-3 is usual. Even if all {count:,} steps pointed the same way, it would have moved "
            f"by {percent(way)}; the loss is where it began (it changed by {percent(abs(fell))}).{remedy.why}"
        ),
        fix=remedy.fix,
        fix_code=remedy.code,
        diff=remedy.diff,
        setting=rates_as_factors.setting(optimization, higher, highest),
        first_step=int(seen.step[0]),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("update per weight, median of all measured", ratio, "", 1e-3, "what is usual", role="expected"),
            Evidence("all updates, relative to a typical tensor", way, "", *limits.against("travelled"), role="most"),
            Evidence("fall of the loss", fell, "share", *limits.against("falls"), role="most"),
            Evidence("learning rate", rate),
        ],
        cost=timing.cost_of(optimization, np.ones(count, dtype=bool)),
        location=remedy.place,
        seen_at=optimization.step_location,
        charts=pictures.loss(optimization),
        false_alarm="A trained model that only needs small adjustments, with a loss that cannot fall much.",
    )


def _large(optimization: Optimization, ratio: float, limits: Limits) -> Finding:
    half, rate = len(optimization.steps) // 2, schedulers.given_rate(optimization)
    begin = timing.step_at(optimization, half)
    affected, lower = np.arange(len(optimization.steps)) >= half, rate / 10
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"Updates are too large: a step changes a typical weight tensor by {percent(ratio)} of its size",
        summary=(
            f"In the second half of the run a step still changes a typical weight tensor by {percent(ratio)} of its "
            "size, where about 0.1% is usual, and the loss is no lower than at the start: such steps undo one another."
        ),
        fix="Try a tenth and a hundredth of the learning rate.",
        fix_code=schedulers.with_rate(optimization, lower, rate),
        diff=schedulers.edit_of_rate(optimization, lower),
        setting=schedulers.setting_of_rate(optimization, lower),
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, half),
        evidence=[Evidence("update per weight in the second half", ratio, "", *limits.against("large"))],
        cost=timing.cost_of(optimization, affected),
        location=schedulers.rate_location(optimization),
        seen_at=optimization.step_location,
        charts=pictures.loss(optimization, [Mark(float(begin), "second half")]),
        false_alarm="Weights that are re-drawn all the time on purpose.",
    )


RULE = Rule(
    id="update-ratio",
    family="gradients",
    severity="warning",
    title="Updates are far too small, or far too large, for the weights",
    about="A step usually changes weights by a thousandth of their size. At a hundredth of that, little trains.",
    check=check,
    settings=("learning_rate",),
    verify="Record the run again: a step changes a typical tensor by about 0.1% of its size, and the loss falls.",
    needs=(("parameters.update_norm", "parameters.weight_norm", "steps.loss"),),
    thresholds=(
        ratios.STEPS,
        ratios.MEASUREMENTS,
        ratios.TRAVELLED,
        ratios.FALLS,
        *decay.THRESHOLDS,
        Threshold("large", 0.05, "", "fifty times the usual 1e-3, when a training should have settled"),
        Threshold("gradient", 1e-4, "", "of the weights; below it no usual rate would move them"),
        Threshold("skill", 0.5, "", "predictions that differ half as much as the targets come of a trained model"),
        Threshold("climbs", 2.0, "", "times the median of its first half: a rate that is still on its way up"),
    ),
    not_when="Warm-up, layers that begin at zero, trained models, losses that fall, reinforcement learning.",
    references=("https://cs231n.github.io/neural-networks-3/#ratio",),
)
