"""scaler-misuse: a GradScaler scales the loss or unscales the gradients, and its other half is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.gradients import overflows
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, OneOutcome, Passed, Rule, Skipped, Threshold, each_optimization
from tracelyze.analyzers.rules.precision.scaler_misuse import scaled_losses
from tracelyze.analyzers.rules.precision.scaler_misuse.scaled_losses import (
    ANEW,
    BESIDE,
    FIXES,
    NEVER,
    STILL,
    UNDERFLOW,
    UNUSED,
)
from tracelyze.analyzers.script import edits
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Mask

MADE_THE_STEP, NOTHING = 2, 0


@each_optimization
def check(optimization: Optimization, limits: Limits) -> OneOutcome:
    """Steps on scaled gradients, and steps that divide gradients which nobody scaled."""
    steps = optimization.steps
    known = steps.known("scaler_use") & (steps["backwards"] > 0)
    if known.sum() < limits["steps"]:
        return Skipped(f"fewer than {limits['steps']:.0f} steps ran with a GradScaler")
    scaled = known & (steps["losses_scaled"] > 0)
    plain = steps["backwards_unscaled"] >= steps["backwards"]  # all of them
    still_scaled = scaled & (steps["scaler_use"] == NOTHING) & ~plain
    never_scaled = known & (steps["losses_scaled"] == 0) & (steps["scaler_use"] == MADE_THE_STEP)
    divided = np.isclose(steps["loss_divisor"] * steps["scale"], 1.0, rtol=1e-3)  # multiplied by hand
    never_scaled &= ~divided
    by_scaler = known & (steps["scaler_use"] == MADE_THE_STEP)
    beside = scaled & by_scaler & (steps["backwards_unscaled"] > 0) & ~divided
    if len(optimization.process.optimizations) > 1:
        beside[:] = False  # the loss of an optimizer that uses no scaler
    unused, beside = beside & plain, beside & ~plain
    anew = by_scaler & (steps["scaler_new"] == 1)
    kinds = ((still_scaled, STILL), (never_scaled, NEVER), (unused, UNUSED), (beside, BESIDE), (anew, ANEW))
    for bad, words in kinds:
        if bad.sum() >= limits["share"] * known.sum():
            return _finding(optimization, bad, words, limits)
    share = float(scaled.sum() / known.sum())
    if (scaled & plain).any():
        return Passed(f"scaler.scale() was called in {share_of(share, 'steps')}, and no backward ran on what it gave")
    return Passed(f"losses of {share_of(share, 'steps')} were scaled, and unscaled again")


def _finding(optimization: Optimization, bad: Mask, words: tuple[str, str], limits: Limits) -> Finding:
    scaled, first = words is STILL, int(np.argmax(bad))
    scale = optimization.steps["scale"][np.isfinite(optimization.steps["scale"])]
    factor = f"{number(float(scale[0]))}" if len(scale) else "65,536 unless init_scale is set"
    factor += " at first" * int((scale != scale[:1]).any())
    plain = scaled_losses.plain(optimization) if words is BESIDE else None
    place = optimization.step_location if scaled or words is ANEW else optimization.backward_location
    half = UNDERFLOW if overflows.computes_in(optimization) == "float16" else ""
    stepped, (title, summary) = scaled_losses.stepped(optimization), words
    made = f'scaler = torch.amp.GradScaler("{optimization.process.device}")  # before the loop, as you make it today\n'
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=title,
        summary=f"In {share_of(float(bad.mean()), 'steps')} {summary.format(factor=factor, half=half)}",
        fix=FIXES.get(words[0], "Scale every loss before backward, and step with scaler.step(optimizer).")
        + stepped.fix,
        fix_code=(made if words is ANEW else "") + (plain.code if plain else stepped.code),
        first_step=timing.step_at(optimization, first),
        last_step=timing.step_at(optimization, int(np.flatnonzero(bad)[-1])),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("such steps", int(bad.sum()), "steps", *limits.against("steps"), role="basis"),
            Evidence("their share", float(bad.mean()), "share", *limits.against("share"), role="basis"),
        ],
        location=plain.place if plain else place,
        charts=pictures.grad_norm(optimization) + pictures.loss(optimization),
        diff=plain.diff
        if plain
        else stepped.diff
        if scaled
        else edits.scale_the_loss(optimization)
        if words in (NEVER, UNUSED)
        else None,
        false_alarm="Gradients that the script unscales itself, without scaler.unscale_.",
    )


RULE = Rule(
    id="scaler-misuse",
    family="precision",
    severity="warning",
    title="Only half of GradScaler is used",
    about="GradScaler multiplies the loss before backward and divides the gradients in its step. Each needs the other.",
    check=check,
    verify="Record the run again: the scaler scales every loss and makes every step.",
    excluded=(
        "scaler.unscale_ before a step of the script's own: the scaler did nothing in these steps.",
        "Losses scaled by hand with scaler.get_scale() are not counted.",
    ),
    absent="The run uses no GradScaler.",
    needs=(("steps.scaler_use", "steps.losses_scaled"),),
    thresholds=(
        Threshold("steps", 10, "steps", "a first try is no habit"),
        Threshold("share", 0.9, "share", "every step, as the line is written"),
    ),
    not_when="scaler.unscale_ before a step made by the script, losses multiplied by scaler.get_scale() by hand.",
    references=("https://docs.pytorch.org/docs/stable/notes/amp_examples.html",),
)
