"""fp16-overflow: gradients overflow float16 again and again; GradScaler skips steps and its scale collapses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.gradients.overflows import Overflows, computes_in, overflows
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.evidence.editing.remade.precision import overgrown
from tracelyze.analyzers.evidence.loss import broken_modules
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.signatures import short_intervals
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

FIX = (
    "Use bfloat16 where the hardware has it (no scaler needed). Otherwise find what overflows: clip gradients after "
    "scaler.unscale_, lower the learning rate, keep softmax, norms, exponentials and the loss in float32."
)
FIX_FORWARD = (
    "Use bfloat16 where the hardware has it (no scaler needed). Otherwise compute in float32 what overflows in the "
    "forward pass: large inputs and targets, softmax, norms, exponentials, and the loss. No loss scale helps there."
)
FIX_POWER = (
    "Use bfloat16 where the hardware has it (no scaler needed). Otherwise take the {kind} of float32 numbers. No loss "
    "scale helps there."
)
FIX_BFLOAT16 = (
    "Find what overflows: clip gradients after scaler.unscale_, lower the learning rate. bfloat16 holds numbers as "
    "large as float32 does, so that it needs no scaler: leave it out."
)
FIX_CODE_BFLOAT16 = "loss.backward()\noptimizer.step()  # without the scaler, which only float16 needs"
FIX_CODE = 'with torch.autocast("{device}", dtype=torch.bfloat16):\n    loss = criterion(model(x), y)'


def check(process: Process, limits: Limits) -> Outcome:
    """Falls of the loss scale and skipped steps, apart from the scaler's own search for the largest scale."""
    findings: list[Finding] = []
    reasons: list[str] = []
    for optimization in process.optimizations:
        seen = overflows(optimization, int(limits["settling"]))
        if seen is None:
            continue
        reasons.append(_reason(seen))
        if (often := short_intervals.finding(optimization, seen, RULE.id, limits)) is not None:
            findings.append(often)
            continue
        collapsed = seen.scale is not None and (seen.scale < limits["scale"] or seen.backoffs >= limits["backoffs"])
        if (collapsed and seen.count >= limits["backoffs"]) or (
            seen.recent >= limits["share"] and seen.window >= limits["settling"]
        ):
            findings.append(_finding(optimization, seen, limits))
    if not reasons:
        return Skipped("no step went through a GradScaler", "not-applicable")
    return findings or Passed("; ".join(reasons))


def _reason(seen: Overflows) -> str:
    scale = "" if seen.scale is None else f", the loss scale ended at {number(seen.scale)}"
    return f"{plural(seen.count, 'step')} skipped beyond the scaler's own probing{scale}"


def _finding(optimization: Optimization, seen: Overflows, limits: Limits) -> Finding:
    first = int(np.argmax(seen.bad))
    begin = timing.step_at(optimization, first)
    dead = (seen.scale is not None and seen.scale < limits["scale"]) or seen.recent >= limits["dead"]
    loss = optimization.steps["loss"][seen.bad]
    forward = bool(optimization.steps.known("loss")[seen.bad].any()) and not np.isfinite(loss).any()
    lately = f" (in the last {seen.window}: {percent(seen.recent)})" if seen.recent > 0 else ""
    summary = f"{plural(seen.count, 'step')} overflowed{lately} and were skipped: they cost time and changed nothing."
    if seen.count == len(seen.bad):
        summary = "Every step overflowed and was skipped, so nothing was trained."
    kind = computes_in(optimization)
    if seen.scale is not None and seen.backoffs:
        summary += f" The loss scale fell to {number(seen.scale)} and did not recover"
        summary += "; small gradients vanish in float16 then." if kind == "float16" else "."
    if forward:
        summary += " The loss itself is not finite in these steps, so the overflow is already in the forward pass."
    fix, code = FIX_FORWARD if forward else FIX, FIX_CODE
    first_broken = broken_modules.first_of(optimization.process) if forward and kind == "float16" else None
    grown = overgrown.within(optimization.process, first_broken) if first_broken else None
    if first_broken:
        summary += f" {broken_modules.named(first_broken)} is the first module that puts out Inf or NaN there."
        summary += grown.said() if grown else ""
        fix = FIX_POWER.format(kind=grown.kind) if grown and grown.kind else fix
    if kind == "bfloat16":
        summary += " Autocast is to bfloat16 here, where a scaler gains nothing."
        fix, code = FIX_BFLOAT16, FIX_CODE_BFLOAT16
    title = f"{kind or 'Scaled gradients'} {'overflows' if kind else 'overflow'}: "
    title += f"{seen.count:,} of {len(seen.bad):,} steps skipped"
    return Finding(
        rule=RULE.id,
        severity="critical" if dead else "warning",
        confidence="certain" if optimization.steps.has("skipped") else "likely",
        title=title if seen.scale is None else f"{title}, loss scale at {number(seen.scale)}",
        summary=summary,
        fix=fix,
        fix_code=(grown and grown.remedy)
        or code.format(device=str(optimization.facts.get("device") or "cuda").partition(":")[0]),
        first_step=begin,
        last_step=timing.step_at(optimization, int(np.flatnonzero(seen.bad)[-1])),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("recent steps skipped", seen.recent, "share", *limits.against("share")),
            Evidence("loss scale at the end", seen.scale, "", *limits.against("scale"), role="most"),
            Evidence("back-offs without recovery", seen.backoffs, "", *limits.against("backoffs")),
        ],
        cost=timing.cost_of(optimization, seen.bad),
        location=grown.line if grown else optimization.step_location,
        seen_at=optimization.step_location,
        charts=pictures.loss_scale(optimization, [Mark(float(begin), "overflows begin")])
        + pictures.loss(optimization, [Mark(float(begin), "overflows begin")]),
        false_alarm="Steps that the script skips itself, for another reason.",
    )


RULE = Rule(
    id="fp16-overflow",
    family="precision",
    severity="critical",
    title="float16 gradients overflow again and again",
    about="GradScaler skips a step whose gradients overflow, and halves its scale. An occasional skip is its search "
    "for the largest scale; constant skipping means the training does not fit in float16.",
    check=check,
    settings=("fp16", "precision"),
    verify="Record the run again: the scaler skips a step occasionally at most, and its scale recovers.",
    excluded=(
        ("The scaler's search for its scale: the first steps, and one skip per growth interval, are not counted."),
    ),
    absent="No step of the run went through a GradScaler.",
    needs=(("steps.scale",), ("steps.skipped",)),
    thresholds=(
        Threshold("scale", 1.0, "", "below 1 the scaler no longer lifts gradients, it shrinks them"),
        Threshold("backoffs", 5, "", "five halvings are a factor of 32; probing costs one per growth interval"),
        Threshold("share", 0.1, "share", "probing every 2,000 steps (the default) skips 0.05% of the steps"),
        Threshold("interval", 20, "steps", "derived: an overflow after each growth skips one step in 21 or more"),
        Threshold("settling", 50, "steps", "from 65,536 down to 1 takes 16 halvings; three times that to settle"),
        Threshold("dead", 0.5, "share", "of the recent steps: where most are skipped the training has all but stopped"),
    ),
    not_when="The scaler finding its scale in the first steps, and one skip per growth interval.",
    references=("https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling",),
)
