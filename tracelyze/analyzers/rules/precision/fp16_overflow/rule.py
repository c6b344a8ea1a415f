"""fp16-overflow: gradients overflow float16 again and again; GradScaler skips steps and its scale collapses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.gradients.overflows import Overflows, computes_in, overflows
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.precision.fp16_overflow import overflow_remedy, short_intervals
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


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
    kind = computes_in(optimization)
    remedy = overflow_remedy.remedy(optimization, seen, kind)
    title = f"{kind or 'Scaled gradients'} {'overflows' if kind else 'overflow'}: "
    title += f"{seen.count:,} of {len(seen.bad):,} steps skipped"
    marks = [Mark(float(begin), "overflows begin")]
    return Finding(
        rule=RULE.id,
        severity="critical" if dead else "warning",
        confidence="certain" if optimization.steps.has("skipped") else "likely",
        title=title if seen.scale is None else f"{title}, loss scale at {number(seen.scale)}",
        summary=_summary(seen, kind) + remedy.why,
        fix=remedy.fix,
        fix_code=remedy.code,
        first_step=begin,
        last_step=timing.step_at(optimization, int(np.flatnonzero(seen.bad)[-1])),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("recent steps skipped", seen.recent, "share", *limits.against("share")),
            Evidence("loss scale at the end", seen.scale, "", *limits.against("scale"), role="most"),
            Evidence("back-offs without recovery", seen.backoffs, "", *limits.against("backoffs")),
        ],
        cost=timing.cost_of(optimization, seen.bad),
        location=remedy.place or optimization.step_location,
        seen_at=optimization.step_location,
        charts=pictures.loss_scale(optimization, marks) + pictures.loss(optimization, marks),
        false_alarm="Steps that the script skips itself, for another reason.",
    )


def _summary(seen: Overflows, kind: str) -> str:
    lately = f" (in the last {seen.window}: {percent(seen.recent)})" if seen.recent > 0 else ""
    said = f"{plural(seen.count, 'step')} overflowed{lately} and were skipped: they cost time and changed nothing."
    if seen.count == len(seen.bad):
        said = "Every step overflowed and was skipped, so nothing was trained."
    if seen.scale is None or not seen.backoffs:
        return said
    said += f" The loss scale fell to {number(seen.scale)} and did not recover"
    return said + ("; small gradients vanish in float16 then." if kind == "float16" else ".")


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
