"""clip-before-unscale: gradients are clipped while they are still multiplied by the loss scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import clip_values
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.analyzers.rules.clipping.clip_before_unscale import scaled_clips, unscaled_clips
from tracelyze.analyzers.script import edits
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

FIX = "Call scaler.unscale_(optimizer) right before clipping, once per step."
OWN = (
    "Call scaler.unscale_ for {name} as well, right before clipping, once per step: it unscales the gradients of one "
    "optimizer, and leaves those of others as they are."
)
LATE = (
    "Move line {line}, which unscales after the clip, to before it, also where the two are callbacks or hooks: their "
    "order decides. A scaler unscales once per step, and raises where it is asked again."
)
NORM = (
    "Call scaler.unscale_(optimizer) once per step, before the norm that the clip uses is computed{at}: right before "
    "the clip is too late."
)
GIVEN = """norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
torch.nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, norm)"""


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
    scales = steps["scale"][bad]
    scales = scales[np.isfinite(scales)]
    usual, times = float(np.median(scales)) if len(scales) else None, scaled_clips.times(scales)
    once = not (steps["clips"][bad] > 1).any()  # a scaler unscales once per step, and raises where it is asked again
    late = next((one for one in optimization.process.locations("unscale") if "unscale_" in one.source), None)
    diff = edits.unscale_before_clip(optimization) if once and not late else None
    partly = _is_shared(optimization)
    unscale = diff.added[0].strip() if diff else "scaler.unscale_(optimizer)  # once a step, before its first clip"
    unscale = f"{late.source.strip()}  # from line {late.line}, and no longer there" if late else unscale
    clip = optimization.process.location("clip")
    given = clip is not None and edits.is_given_a_norm(clip)
    taken = edits.norm_taken(optimization.process, clip) if clip is not None and given else None
    fix = OWN.format(name=timing.training_of(optimization)) if partly else FIX
    fix = LATE.format(line=late.line) if late else fix
    fix = NORM.format(at=f" (line {taken.line})" if taken else "") if given else fix
    code = f"{unscale}\n{GIVEN if given else clip_values.own_line(optimization)}"
    own = unscaled_clips.by_library(
        optimization.process, optimization.backward_location, clip_values.own_line(optimization)
    )
    fix, code = own if own is not None and diff is None and late is None else (fix, code)
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=f"Gradients{timing.name_of(optimization)} are clipped while scaled"
        + ("" if partly else f": the clip sees them {times} too large"),
        summary=(
            f"In {share_of(share, 'clipped steps')} the gradients{timing.name_of(optimization)} were still multiplied "
            f"by the loss scale, so the clip saw them {times} too large. {scaled_clips.cut(optimization, bad, partly)}"
        ),
        fix=fix,
        fix_code=code,
        first_step=begin,
        last_step=timing.step_at(optimization, int(np.flatnonzero(bad)[-1])),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("clipped steps with scaled gradients", share, "share", *limits.against("share")),
            Evidence("loss scale", usual, "", 1, "the factor by which the clip is wrong", role="expected"),
        ],
        location=taken or clip,
        seen_at=clip,
        charts=pictures.loss_scale(optimization, [Mark(float(begin), "clipped while scaled")])
        + pictures.grad_norm(optimization, [Mark(float(begin), "clipped while scaled")]),
        diff=diff,
        false_alarm="A max_norm that was deliberately multiplied by the scale.",
    )


def _is_shared(optimization: Optimization) -> bool:
    """Whether other optimizers beside it were unscaled in time."""
    others = [one for one in optimization.process.optimizations if one is not optimization]
    return any(not (one.steps["clipped_scaled"] == 1).any() and one.steps.known("scale").any() for one in others)


RULE = Rule(
    id="clip-before-unscale",
    family="gradients",
    severity="warning",
    title="Gradients are clipped while still scaled",
    about="With GradScaler, gradients are thousands of times too large until they are unscaled. Clip after that.",
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
