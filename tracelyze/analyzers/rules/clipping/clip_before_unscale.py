"""clip-before-unscale: gradients are clipped while they are still multiplied by the loss scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import edits, pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


def check(process: Process, limits: Limits) -> Outcome:
    """Clips that saw scaled gradients, in nearly all steps that clipped."""
    findings = [found for optimization in process.optimizations if (found := _find(optimization, limits)) is not None]
    return findings or Passed("gradients were unscaled before they were clipped, or not scaled at all")


def _find(optimization: Optimization, limits: Limits) -> Finding | None:
    steps = optimization.steps
    clipped = steps.known("clipped_scaled")
    bad = clipped & (steps["clipped_scaled"] == 1)
    if int(bad.sum()) < limits["steps"] or bad.sum() < limits["share"] * clipped.sum():
        return None
    first, share = int(np.argmax(bad)), float(bad.sum()) / float(clipped.sum())
    begin = timing.step_at(optimization, first)
    scale = steps["scale"][bad]
    scale = scale[np.isfinite(scale)]
    usual = float(np.median(scale)) if len(scale) else None
    times = f"{number(usual)} times" if usual else "many times"
    once = not (steps["clips"][bad] > 1).any()  # a scaler unscales once per step, and raises where it is asked again
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=f"Gradients{timing.name_of(optimization)} are clipped while scaled: the clip acts {times} too hard",
        summary=(
            f"In {share_of(share, 'clipped steps')} the gradients were still multiplied by the loss scale, so the "
            f"clip saw norms {times} too large. It cut nearly every step down to max_norm divided by the scale, so "
            "the learning rate that acts is that much smaller."
        ),
        fix="Call scaler.unscale_(optimizer) right before clipping, once per step.",
        fix_code="scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\n"
        "clip_grad_norm_(model.parameters(), max_norm)\nscaler.step(optimizer)\nscaler.update()",
        first_step=begin,
        last_step=timing.step_at(optimization, int(np.flatnonzero(bad)[-1])),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("clipped steps with scaled gradients", share, "share", limits["share"], limits.source("share")),
            Evidence("loss scale", usual, "", 1, "the factor by which the clip is wrong"),
        ],
        location=optimization.process.location("clip"),
        charts=pictures.loss_scale(optimization, [Mark(float(begin), "clipped while scaled")])
        + pictures.grad_norm(optimization, [Mark(float(begin), "clipped while scaled")]),
        diff=edits.unscale_before_clip(optimization) if once else None,
        false_alarm="A max_norm that was deliberately multiplied by the scale.",
    )


RULE = Rule(
    id="clip-before-unscale",
    family="gradients",
    severity="warning",
    title="Gradients are clipped while still scaled",
    about="With GradScaler, gradients are thousands of times too large until they are unscaled; clipping must come "
    "after.",
    check=check,
    verify="Record the run again: no clip sees scaled gradients.",
    excluded=("A scale of 1: the gradients were still multiplied by the loss scale.",),
    absent="The run clips no gradients beside a GradScaler.",
    needs=(("steps.clipped_scaled",),),
    thresholds=(
        Threshold("share", 0.9, "share", "the order of the calls is the same in every step"),
        Threshold("steps", 3, "steps", "the first step may differ"),
    ),
    not_when="scaler.unscale_ was called first.",
    references=("https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping",),
)
