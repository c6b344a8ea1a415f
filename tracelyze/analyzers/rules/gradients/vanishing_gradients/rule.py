"""vanishing-gradients: they thin out layer by layer until the first layers get next to nothing, and the loss stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Passed, Rule, Skipped, Threshold, each_optimization
from tracelyze.analyzers.rules.gradients.vanishing_gradients import thinning_layers
from tracelyze.analyzers.rules.gradients.vanishing_gradients.depth import Profile, profiles
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

TINY = 1e-12  # nothing at all reads as "under 0.1%", like next to nothing


@each_optimization
def check(optimization: Optimization, limits: Limits) -> Finding | Passed | Skipped:
    """Gradient per element of early layers against late ones, over the measurements, while the loss does not fall."""
    measured = profiles(optimization.process.tables["parameters"], optimization.optimizer, int(limits["layers"]))
    if len(measured) < limits["looks"] or measured[-1].step - measured[0].step < limits["steps"]:
        return Skipped(
            f"the model has fewer than {limits['layers']:.0f} layers with gradients, or they were sampled too rarely"
        )
    vanishing = [_vanishes(profile, limits) for profile in measured]
    first = len(measured) - vanishing[::-1].index(False) if False in vanishing else 0
    stretch = measured[first:]
    if len(stretch) < limits["looks"] or stretch[-1].step - stretch[0].step < limits["lasts"] * len(optimization.steps):
        ratio = float(np.median([profile.ratio for profile in measured]))
        return Passed(f"the first layers' gradients are {ratio:.2g} of the last layers', or do not stay small")
    stuck = _stuck(optimization, limits)
    if isinstance(stuck, Skipped):
        return stuck
    return _finding(optimization, stretch, stuck, limits) if stuck else Passed("the loss falls all the same, or is low")


def _vanishes(profile: Profile, limits: Limits) -> bool:
    """Small at the front, and by a decay through the depth: one step down is a cut or a weight of the script's."""
    gradual = profile.in_order >= limits["in_order"] and profile.steepest <= limits["steepest"]
    return profile.ratio <= limits["ratio"] and gradual


def _stuck(optimization: Optimization, limits: Limits) -> tuple[float, float] | Skipped | None:
    """Where the loss does not fall, its medians in the second fifth of the run and in the last."""
    loss = optimization.steps["loss"]
    if not len(loss) or not np.isfinite(loss).all() or len(loss) < limits["steps"]:
        return Skipped("the loss of some steps is missing or not finite, so whether it falls is not known")
    fifth = len(loss) // 5
    parts = (loss[: min(20, fifth // 4)], loss[fifth : 2 * fifth], loss[-fifth:])
    start, early, end = (float(np.median(part)) for part in parts)
    return (early, end) if start > 0 and end >= max(limits["high"] * start, limits["falls"] * early) else None


def _finding(optimization: Optimization, stretch: list[Profile], loss: tuple[float, float], limits: Limits) -> Finding:
    profile = sorted(stretch, key=lambda one: one.ends)[len(stretch) // 2]  # all numbers are of one measurement
    ends, thirds = profile.ends, profile.ratio
    begin = stretch[0].step
    steps = int((timing.numbers(optimization) >= begin).sum())  # those after the last measurement, too
    moved = steps * float(np.median([np.median(one.moved[: one.third]) for one in stretch]))
    early, late, third = profile.layers[0], profile.layers[-1], profile.third
    remedy = thinning_layers.remedy(optimization, early, limits["small"])
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain" if moved < limits["moved"] else "likely",
        title=f"Gradients vanish: layer {early} gets {ends:.1g} of what layer {late} gets",
        summary=(
            f"From step {begin:,} on, the gradients{timing.name_of(optimization)} thin out from layer {late} back to "
            f"layer {early}: at step {profile.step:,}, the middle one of those measured, per element "
            f"{profile.gradient[-1]:.2g} at the last and {profile.gradient[0]:.2g} at the first. There the first "
            f"{third} layers get {thirds:.1g} of what the last {third} get. "
            f"The loss does not fall: {number(loss[0])} in the second fifth of the run, {number(loss[1])} in the last. "
            + (
                f"If the updates of all {plural(steps, 'step')} pointed the same way, the first layers' weights would "
                f"have moved by {percent(max(moved, TINY))} of their size: they hardly train."
                if moved < limits["moved"]
                else "The optimizer scales such gradients up, so it mostly follows noise."
            )
            + remedy.why
        ),
        fix=remedy.fix,
        fix_code=remedy.code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence(f"gradient per element at step {profile.step:,}, layer {early} against {late}", f"{ends:.1g}"),
            Evidence(f"the same, first {third} layers against the last {third}", f"{thirds:.1g}"),
            Evidence("layers with gradients", len(profile.layers), "layers"),
            Evidence("consecutive, to the end", len(stretch), "measurements", *limits.against("looks")),
            Evidence("most the first layers could move in that time, relative to their weights", f"{moved:.1g}"),
        ],
        cost=timing.cost_of(optimization, timing.numbers(optimization) >= begin),
        location=remedy.place or optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.loss(optimization, [Mark(float(begin), "gradients vanish")]) + pictures.grad_norm(optimization),
        false_alarm="A loss that cannot get lower, so the first layers are not what limits it.",
    )


RULE = Rule(
    id="vanishing-gradients",
    family="gradients",
    severity="warning",
    title="Gradients vanish before they reach the first layers",
    about="Saturating activations or small weights shrink the gradient at every layer: the first layers do not train.",
    check=check,
    verify="Record the run again: the first layers get over 1e-4 of the last ones' gradient, and the loss falls.",
    excluded=(
        "A converged model: the loss ended above half of where it began.",
        "Frozen layers or a cut: the decay runs through all layers in order.",
    ),
    absent="The run has no gradients by layer.",
    needs=(("parameters.grad_norm", "steps.loss"),),
    thresholds=(
        Threshold("ratio", 1e-4, "share", "the slope of a sigmoid is at most 1/4: seven of them in a row"),
        Threshold("layers", 6, "layers", "two layers in each third; a decay over fewer is no matter of depth"),
        Threshold("in_order", 0.8, "share", "of the pairs of layers; without an order through the depth it is half"),
        Threshold("steepest", 0.5, "share", "a decay with depth has many steps; one that is half of it is a cut"),
        Threshold("looks", 5, "measurements", "those of the first steps alone would be two or three"),
        Threshold("steps", 100, "steps", "deep networks may need some dozens of steps to get going"),
        Threshold("high", 0.5, "share", "of the loss of the first steps: half is gone where something is learned"),
        Threshold("falls", 0.95, "share", "last fifth of the run against the second: less is noise"),
        Threshold("moved", 0.01, "share", "weights within a percent of where they began compute the same features"),
        Threshold("small", 0.5, "share", "of its input's size: torch's own initialisation hands on 0.58, Xavier's 1"),
        Threshold("lasts", 0.5, "share", "of the run, to its end: less may be a passing phase"),
    ),
    not_when="Frozen layers, converged models, losses that fall, cuts made by the script (detach, weights).",
    references=("https://proceedings.mlr.press/v9/glorot10a.html",),
)
