"""fp16-without-scaler: trained under float16 autocast without a loss scaler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold, missing
from tracelyze.analyzers.rules.precision.fp16_without_scaler import idle_scalers
from tracelyze.analyzers.script import line_edits, script_lines
from tracelyze.analyzers.script.editing.remade.precision import regions
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Mask

FLOAT16 = 1


def check(process: Process, limits: Limits) -> Outcome:
    """Autocast to float16, or weights in it, with no scaler and no loss multiplied by a constant instead."""
    state = (process.facts.get("signals") or {}).get("loss_scale")
    if isinstance(state, dict) and state.get("reason"):
        return missing(process, "steps.scale", RULE.absent)
    findings = [found for optimization in process.optimizations if (found := _find(optimization, limits)) is not None]
    if not findings and not any(_in_half(one).any() for one in process.optimizations):
        return Skipped("nothing is computed in float16", "not-applicable")
    return findings or Passed("what is computed in float16 is scaled, or hardly any of it is")


def _in_half(optimization: Optimization) -> Mask:
    """Steps whose weights are kept in float16, or that ran under its autocast; frameworks that keep a float32 copy of
    the weights hand that copy to the optimizer."""
    known = optimization.steps.known("autocast")
    if str(optimization.facts.get("dtype") or "") == "float16":
        return known
    return np.asarray(known & (optimization.steps["autocast"] == FLOAT16), dtype=bool)


def _find(optimization: Optimization, limits: Limits) -> Finding | None:
    steps = optimization.steps
    dtype = str(optimization.facts.get("dtype") or "")
    weights, half, known = dtype == "float16", _in_half(optimization), steps.known("autocast")
    share = float(half.sum()) / max(1.0, float(known.sum()))
    if share < limits["share"] or half.sum() < limits["steps"] or not (weights or "float32" in dtype):
        return None
    scaled_by_hand = bool((steps["loss_divisor"] < 1).any())
    half_used = bool((steps["losses_scaled"] > 0).any())  # scaler-misuse says so
    if steps.has("scale") or steps.has("skipped") or half_used or scaled_by_hand:
        return None
    return _finding(optimization, half, dtype, weights, limits)


def _finding(optimization: Optimization, half: Mask, dtype: str, weights: bool, limits: Limits) -> Finding:
    first, share = int(np.argmax(half)), float(half.sum()) / float(optimization.steps.known("autocast").sum())
    begin = timing.step_at(optimization, first)
    device = str(optimization.facts.get("device") or "cpu").partition(":")[0]
    process, backward = optimization.process, optimization.backward_location
    place = script_lines.made_short(process) if weights else script_lines.cast_to_float16(process)
    idle = idle_scalers.made(process)
    how = "with weights kept in float16" if weights else "under float16 autocast"
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=f"float16 training{timing.name_of(optimization)} without a loss scaler: small gradients can become zero",
        summary=(
            f"{share_of(share, 'steps').capitalize()} ran {how}, and {idle_scalers.said(process, idle)}. "
            "Gradients below 6e-8 become exactly zero in float16, so small updates are silently lost. Large ones "
            "overflow to Inf and reach the weights."
        ),
        fix="Use bfloat16, which needs no scaler, or "
        + ("keep the weights in float32 and " if weights else "")
        + (f"enable the GradScaler of line {idle.line}." if idle else "scale the loss with GradScaler.")
        + (regions.said(process) if weights else ""),
        fix_code=regions.with_float32_weights(optimization, place)
        if weights
        else idle_scalers.enabled(process, idle)
        or f'with torch.autocast("{device}", dtype=torch.bfloat16):\n    loss = criterion(model(x), y)',
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("steps in float16", share, "share", *limits.against("share")),
            Evidence("steps with a loss scale", 0, "steps", 1, "float16 training needs one", role="expected"),
            Evidence("parameters", dtype),
        ],
        diff=line_edits.to_bfloat16(process, place) if device == "cpu" and not weights and not idle else None,
        location=(None if weights else idle) or place or backward,
        seen_at=backward,
        charts=pictures.loss(optimization, [Mark(float(begin), "float16 without scaler")])
        + pictures.grad_norm(optimization),
        false_alarm="A framework that scales the loss itself, without torch's GradScaler.",
    )


RULE = Rule(
    id="fp16-without-scaler",
    family="precision",
    severity="critical",
    title="float16 without a loss scaler",
    about="The smallest float16 number is 6e-8. Without loss scaling, smaller gradients vanish.",
    check=check,
    verify="Record the run again: autocast runs in bfloat16, or a GradScaler scales every loss.",
    absent="The run uses no autocast.",
    needs=(("steps.autocast",),),
    thresholds=(
        Threshold("share", 0.9, "share", "a forward under autocast is under it in every step"),
        Threshold("steps", 5, "steps", "a few steps may be a probe"),
    ),
    not_when="bfloat16, frameworks that keep a float32 copy of the weights, a loss scaled by hand.",
    references=("https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling",),
)
