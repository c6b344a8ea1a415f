"""clip-per-microbatch: gradients are clipped while they are still being accumulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import accumulation, clip_values
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.clipping.clip_per_microbatch import one_clip
from tracelyze.diagnosis import Confidence, Evidence, Finding, Mark
from tracelyze.formatting import number, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Mask


def check(process: Process, limits: Limits) -> Outcome:
    """Whether there are as many clippings as backwards, step after step, although several backwards make up one
    step."""
    if len(process.optimizations) > 1:
        return Skipped(accumulation.SEVERAL_OPTIMIZERS, "not-applicable")
    return _check(process.optimizations[0], limits)


def _check(optimization: Optimization, limits: Limits) -> Outcome:
    steps = optimization.steps
    backwards, clips = steps["backwards"], steps["clips"]
    several = (backwards > 1) & (clips > 0) & ~timing.skipped(optimization)
    if not several.any():
        return Skipped("no step has both several backwards and a clipping", "not-applicable")
    each = several & (clips == backwards)
    if each.sum() < limits["steps"] or each.sum() < limits["share"] * several.sum():
        ratio = float(np.median(clips[several] / backwards[several]))
        return Passed(f"{number(ratio)} clippings per backward: not one after each")
    if (np.nan_to_num(steps["grads_discarded"][each]) > 0).any():
        return Passed("gradients are cleared between the backwards: each clipping sees one backward alone")
    if accumulation.one_each(optimization)[each].mean() < limits["share"]:
        return Skipped(accumulation.NOT_PER_BATCH, "not-applicable")
    varies = len(np.unique(backwards[each])) > 1
    parts = "" if varies or clip_values.clips_all(optimization) else _parts(optimization, int(np.median(clips[each])))
    if parts:
        return Skipped(f"a step clips as often as there are {parts}, so each clip may belong to one of them")
    return [_finding(optimization, each, "certain" if varies else "likely", limits)]


def _parts(optimization: Optimization, clips: int) -> str:
    """What else there are as many of as clippings, each of which may be clipped once before the step; or nothing."""
    counts = {
        "parameter groups": optimization.facts.get("groups"),
        "parameter tensors": optimization.facts.get("parameters"),
        "lines that clip": len(optimization.process.locations("clip")),
    }
    return next((name for name, count in counts.items() if count == clips), "")


def _finding(optimization: Optimization, each: Mask, confidence: Confidence, limits: Limits) -> Finding:
    steps = optimization.steps
    first = int(np.argmax(each))
    begin, count = timing.step_at(optimization, first), int(np.median(steps["clips"][each]))
    norms = steps["clip_max_norm"][each]
    limit = float(np.median(norms[np.isfinite(norms)])) if np.isfinite(norms).any() else None
    share = float(each.sum() / len(steps))
    varies = len(np.unique(steps["clips"][each])) > 1  # the last window of an epoch may be shorter
    often = f"after every micro-batch, usually {count} times per step"
    backwards = f"each backward, of which a step usually has {count}" if varies else f"each of {count} backwards"
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence=confidence,
        title=f"Gradients are clipped {often if varies else f'{count} times per step, after every micro-batch'}",
        summary=(
            f"In {share_of(share, 'steps')} the gradients were clipped after {backwards}. Clipping before the last "
            "backward cuts the partial sum: early micro-batches count less than late ones, and the limit no longer "
            "applies to the gradient of the step alone."
        ),
        fix="Clip once, after the last backward of the step and right before optimizer.step()."
        + one_clip.read_elsewhere(optimization.process, clip_values.place_of(optimization)),
        fix_code=clip_values.once_complete(optimization),
        diff=one_clip.once_complete(optimization.process, clip_values.place_of(optimization)),
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("steps clipped after each backward", share, "share", *limits.against("share")),
            Evidence("clippings per step", count, "", 1, "one is enough, right before the step", role="expected"),
            Evidence(
                "backwards per step", int(np.median(steps["backwards"][each])), "", 2, "accumulation starts at two"
            ),
            Evidence("limit of the clip", limit, role="setting"),
        ],
        location=optimization.process.location("clip") or optimization.step_location,
        charts=pictures.grad_norm(optimization, [Mark(float(begin), "clipped after each backward")]),
        false_alarm="Limiting each micro-batch's share of the update on purpose.",
    )


RULE = Rule(
    id="clip-per-microbatch",
    family="gradients",
    severity="warning",
    title="Gradients are clipped while they accumulate",
    about="Clipping is meant for the gradient of the whole step. During accumulation it cuts partial sums.",
    check=check,
    verify="Record the run again: every step clips once.",
    excluded=("One clip per parameter group or tensor: the number of clips follows the number of backwards.",),
    absent="The run clips no gradients.",
    needs=(("steps.clips", "steps.backwards"),),
    thresholds=(
        Threshold("share", 0.9, "share", "the order of the calls is the same in every step"),
        Threshold("steps", 10, "steps", "fewer could be a warm-up of some other kind"),
    ),
    not_when="One clip per parameter group or module before the step, closures, several optimizers.",
)
