"""lost-updates: 16-bit weights round most updates away, step after step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.computed.optimization.updates import (
    SIXTEEN_BITS,
    Pooled,
    SampledUpdates,
    keeps_no_copies,
    pooled,
    sampled_changes,
    stays_more_than_a_walk,
)
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Limits, Passed, Rule, Skipped, Threshold, each_optimization
from tracelyze.analyzers.script.editing.remade.precision import regions
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization


@each_optimization
def check(optimization: Optimization, limits: Limits) -> Finding | Passed | Skipped:
    """Share of elements that steps leave as they were, and whether they are still the same many steps later."""
    seen = sampled_changes(optimization)
    if not seen:
        return Skipped("no step with gradients and a learning rate was sampled")
    if not (short := [one for one in seen if one.dtype in SIXTEEN_BITS]):
        return Skipped("the weights are kept in 32 bits or more", "not-applicable")
    pool = pooled(short)
    if len(pool.lost) < limits["looks"]:
        return Skipped("the run is too short to see whether small updates add up")
    share, held = float(np.median(pool.lost)), float(np.median(pool.held))
    if share < limits["lost"] or held < limits["held"]:
        if share >= limits["half"] and keeps_no_copies(optimization) and _stuck(short, limits) >= limits["most"]:
            return _finding(optimization, short, pool, limits, "likely")
        return Passed(f"steps change {percent(1 - share)} of the 16-bit weights, several steps {percent(1 - held)}")
    long = pool.since >= limits["stretch"]
    if _stays(pool, limits):
        return _finding(optimization, short, pool, limits, "certain")
    if int(long.sum()) < limits["looks"]:
        if keeps_no_copies(optimization) and _stays(pool, limits, "short"):
            return _finding(optimization, short, pool, limits, "likely")
        return Skipped("the run is too short to see whether small updates add up")
    return Passed(
        f"a step changes {percent(1 - share)} of the 16-bit weights, {float(np.median(pool.since[long])):.0f} steps "
        f"{percent(1 - float(np.median(pool.held[long])))}: as many more as where small updates add up"
    )


def _stays(pool: Pooled, limits: Limits, stretch: str = "stretch") -> bool:
    """Whether it is always the same weights that change, over stretches of so many steps. Where small updates add up
    (in float32 copies, or by stochastic rounding), n steps change at least as many as a walk in random directions does:
    the square root of n times what one step changes."""
    lost = np.maximum(
        pool.lost, np.concatenate([pool.lost[:1], pool.lost[:-1]])
    )  # of the ends of a stretch the stiller
    unmoved = 1.0 - pool.held <= limits["adding_up"] * (1.0 - lost) * np.sqrt(pool.since)
    if int((unmoved & (pool.since >= limits[stretch])).sum()) >= limits["looks"]:
        return True
    never = 1.0 - float((1.0 - pool.held).sum())  # at least this share is as it was at the first measurement
    return never >= limits["never"] and float(pool.since.sum()) >= limits["steps"]


def _stuck(tensors: list[SampledUpdates], limits: Limits) -> float:
    """Share of the elements that lie in tensors a half of which, about, moves and the other half never does. Each
    tensor is judged by itself: one of large weights beside one of small ones looks the same."""
    stuck = 0
    for one in tensors:
        looks = int(limits["looks"])
        times = stays_more_than_a_walk(one, limits["sparse"])[-looks:]  # the longest stretches tell most
        half = np.isfinite(one.reached).any() and np.nanmedian(one.reached) >= limits["half"]
        if half and len(times) == looks and float(np.median(times)) >= limits["walk"]:
            stuck += one.elements
    return stuck / sum(one.elements for one in tensors)


def _finding(
    optimization: Optimization, short: list[SampledUpdates], pool: Pooled, limits: Limits, confidence: Any
) -> Finding:
    certain = confidence == "certain"
    least, still = "lost" if certain else "half", limits.against("held")
    dtype, steps = short[0].dtype, float(np.median(pool.since))
    share, held = float(np.median(pool.lost)), float(np.median(pool.held))
    rate = float(np.median(np.concatenate([one.lr for one in short])))
    remedy = regions.remedy(optimization)
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence=confidence,
        title=f"{percent(share)} of the weight updates are lost to rounding in {dtype}",
        summary=(
            f"A step{timing.name_of(optimization)} leaves {percent(share)} of the weights that have a gradient "
            f"unchanged, and {percent(held)} are still the same {steps:.0f} steps later: at a learning rate of "
            f"{rate:.3g} {'the' if certain else 'their'} updates are smaller than half the distance from the old value "
            f"to the next one in {dtype}, and they do not add up."
        ),
        fix=remedy.fix,
        fix_code=remedy.code,
        first_step=int(min(one.step[0] for one in short)),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("weights that a step leaves as they were", share, "share", *limits.against(least)),
            Evidence("weights that many steps leave as they were", held, "share", *(still if certain else ())),
            Evidence("tensors kept in 16 bits", plural(len(short), "tensor")),
        ],
        location=remedy.place or optimization.step_location,
        seen_at=optimization.step_location,
        false_alarm="A run whose starting weights should change very little.",
    )


RULE = Rule(
    id="lost-updates",
    family="precision",
    severity="warning",
    title="16-bit weights round updates away",
    about="bfloat16 has no number between 1 and 1.008: smaller updates vanish, however many there are.",
    check=check,
    verify="Record the run again: most weights change at every step.",
    excluded=(
        "Small updates that add up in float32 copies: the same weights stay unchanged over many steps.",
        "A rate that has ended near zero: the median over the run is taken.",
    ),
    needs=(("parameters.unchanged_reached", "parameters.unchanged_since"),),
    thresholds=(
        Threshold("lost", 0.75, "share", "three of four updates without effect: the rate is a quarter of what it says"),
        Threshold("held", 0.5, "share", "most weights are where they were several steps ago"),
        Threshold("half", 0.5, "share", "half of the updates without effect, where the same weights keep still"),
        Threshold(
            "walk", 2.0, "times", "measured: 0.2 to 1.7 where updates add up, of normal weights; up to 3 where not"
        ),
        Threshold("sparse", 0.1, "share", "derived: of ten weights nine have a gradient: what keeps still could move"),
        Threshold("most", 0.5, "share", "derived: most of the weights lie in tensors that keep still"),
        Threshold("adding_up", 0.5, "share", "half as many have moved as if updates went in random directions"),
        Threshold("stretch", 16, "steps", "derived: a walk gets four times as far in them, stuck weights do not"),
        Threshold("short", 8, "steps", "derived: a walk gets 2.8 times as far; for an optimizer that keeps no copies"),
        Threshold("never", 0.99, "share", "where one weight in a hundred moves in all, nothing is learned either way"),
        Threshold("looks", 3, "measurements", "one measurement may meet an unusual step"),
        Threshold("steps", 200, "steps", "weights that do not change at all in so many steps are not trained"),
    ),
    not_when="float32 master weights, stochastic rounding, learning rates that ended near zero, 32-bit weights.",
    references=("https://arxiv.org/abs/2010.06192",),
)
