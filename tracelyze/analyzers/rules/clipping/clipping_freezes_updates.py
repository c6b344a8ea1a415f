"""clipping-freezes-updates: gradients are clipped to so small a part of themselves that the weights hardly move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import clip_values, ratios, style
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding, Setting
from tracelyze.formatting import number, percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


LARGE_NORMS = (
    "{raised} Then find out why the gradient norms are so large: losses that are sums instead of means, inputs or "
    "targets that are not normalised."
)
ORDINARY_NORMS = "{raised} The gradients have an ordinary size, but the limit is too small."
TO_THE_NORM = "Raise the limit of the clip to {limit}, the usual gradient norm, and leave the learning rate as it is."
AT_FIRST = (
    "Raise the limit of the clip to {limit} at first, and leave the learning rate as it is; where the loss still does "
    "not fall, raise it further, up to the usual gradient norm."
)
BY_THE_RATE = (
    "Leave the learning rate out of the limit of the clip: the optimizer multiplies the clipped gradient by it once "
    "more, and both together freeze the weights."
)


def check(process: Process, limits: Limits) -> Outcome:
    """Steps whose gradient was clipped hard, against how far the weights got."""
    optimization = process.optimizations[0]
    reason = style.unjudgeable(optimization)
    if reason:
        return Skipped(reason)
    steps = optimization.steps
    known = (steps["clips"] > 0) & (steps["clip_max_norm"] > 0) & np.isfinite(steps["grad_norm"])
    if int(known.sum()) < limits["steps"]:
        return Skipped(f"{int(known.sum())} clipped steps whose norm is known", "not-applicable")
    factor = steps["clip_max_norm"][known] / np.fmax(steps["grad_norm"][known], 1e-30)
    hard = factor <= limits["factor"]
    if hard.mean() < limits["share"]:
        return Passed(f"the clip leaves {percent(min(1.0, float(np.median(factor))))} of the usual gradient")
    seen = ratios.of(optimization)
    way = ratios.hardly_moves(optimization, seen, limits)
    if way is None:
        return Passed("gradients are clipped hard, and the weights move or the loss falls all the same")
    if not np.median(seen.gain) <= limits["gain"]:
        return Passed("gradients are clipped hard, but the optimizer does not go by their size")
    return [_finding(optimization, float(np.median(factor)), way, limits)]


def _finding(optimization: Optimization, factor: float, way: float, limits: Limits) -> Finding:
    steps = optimization.steps
    norm, limit = float(np.nanmedian(steps["grad_norm"])), float(np.nanmedian(steps["clip_max_norm"]))
    scaled = bool((steps["clipped_scaled"] == 1).any())  # then the clip saw the gradient times the loss scale
    kind = "scaled gradients" if scaled else "gradients"
    bare = clip_values.without_the_rate(optimization, limits["factor"])
    higher = clip_values.higher_limit(optimization, way)
    raised = (TO_THE_NORM if higher == clip_values.written(norm) else AT_FIRST).format(limit=higher)
    ordinary = norm <= clip_values.ORDINARY and not scaled
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"Clipping freezes training: {kind} of norm {number(norm)} are cut to {number(limit)}",
        summary=(
            f"The gradient norm{', times the loss scale,' * scaled} is {number(norm)}, and clip_grad_norm_ cuts it to "
            f"{number(limit)}: {number(factor)} of the gradient is left. At this learning rate all "
            f"{len(steps):,} steps together move a typical weight tensor by at most "
            f"{percent(way).removeprefix('under ')} of its size, and the loss stays where it began."
        ),
        fix=BY_THE_RATE if bare else (ORDINARY_NORMS if ordinary else LARGE_NORMS).format(raised=raised),
        fix_code=bare or clip_values.own_line(optimization, higher),
        first_step=timing.step_at(optimization, 0),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("part of the gradient that is left", factor, "", *limits.against("factor"), role="most"),
            Evidence(
                "all updates together, relative to a typical tensor", way, "", *limits.against("travelled"), role="most"
            ),
            Evidence("gradient norm" + ", times the loss scale" * scaled, norm),
        ],
        cost=timing.cost_of(optimization, np.ones(len(steps), dtype=bool)),
        setting=Setting(("max_norm",), (limit,), "" if bare else higher),
        location=optimization.process.location("clip") or optimization.step_location,
        charts=pictures.grad_norm(optimization) + pictures.loss(optimization),
        false_alarm="A trained model that only needs small adjustments.",
    )


RULE = Rule(
    id="clipping-freezes-updates",
    family="gradients",
    severity="warning",
    title="Clipping leaves almost nothing of the updates",
    about="With plain gradient descent a clipped step is at most learning rate times the clip's limit, however large "
    "the gradient is.",
    check=check,
    settings=("max_grad_norm", "gradient_clip_val"),
    verify="Record the run again: the loss falls, and all steps together move a typical weight tensor by 1% of its "
    "size or more.",
    absent="The run clips no gradients.",
    needs=(("steps.clips", "steps.grad_norm", "parameters.update_norm"),),
    thresholds=(
        ratios.STEPS,
        ratios.MEASUREMENTS,
        ratios.TRAVELLED,
        ratios.FALLS,
        Threshold("factor", 0.01, "", "a hundredth of the gradient: the step is two orders below what the rate says"),
        Threshold("share", 0.9, "share", "of the clipped steps: not outliers, the usual gradient"),
        Threshold("gain", 20, "", "update over rate times gradient: 1 of SGD, 10 with momentum, far more of Adam"),
    ),
    not_when="Optimizers whose steps do not depend on the gradient's size, clipping of outliers, losses that fall.",
)
