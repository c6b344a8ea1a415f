"""loss-nonfinite: the training loss became NaN or Inf; what moved first, and what it did to the rest of the run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization.prelude import what_moved_first
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.recorded import logged
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.analyzers.rules.nonfinite.loss_nonfinite import afterwards, given_up, nonfinite_remedy
from tracelyze.analyzers.signatures import hidden_nan
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


def check(process: Process, limits: Limits) -> Outcome:
    """The first NaN or Inf among the measured losses of each optimizer."""
    findings, count = list[Finding](), 0
    for optimization in process.optimizations:
        hidden = hidden_nan.since(optimization)
        bad = (optimization.steps.known("loss") & ~np.isfinite(optimization.steps["loss"])) | hidden
        count += int(optimization.steps.known("loss").sum())
        if (bad & ~timing.skipped(optimization)).any():
            findings.append(_finding(optimization, bad, limits, bool(hidden.any())))
    findings = findings or _given_up(process, limits)
    return findings or Passed(f"all {plural(count, 'measured loss')} are finite")


def _finding(optimization: Optimization, bad: np.ndarray, limits: Limits, hidden: bool) -> Finding:
    steps = optimization.steps
    first = int(np.argmax(bad))
    what = "NaN" if hidden or np.isnan(steps["loss"][first]) else "Inf"
    later = steps.known("loss") & np.isfinite(steps["loss"]) & ~bad & (np.arange(len(bad)) > first)
    begin = timing.step_at(optimization, first)
    total = int(bad.sum())
    recovered = int(later.sum()) >= limits["recovered"] and total <= limits["share"] * (len(bad) - first)
    before, marks = what_moved_first(optimization, first), [Mark(float(begin), f"loss is {what}", "not-finite")]
    of = afterwards.counted(total, int((steps.known("loss") | bad)[first:].sum()), begin)
    since = None if recovered else afterwards.lost_since(bad, later, limits["recovered"])
    when = "by" if since == first and afterwards.may_be_earlier(optimization, first) else "at"
    told, harm = f"became {what}", of
    if since != first:
        told = f"was {what} once," if total == 1 else f"was {afterwards.kinds(steps, bad)} in {total:,} steps, first"
    if recovered:
        harm = f"Only {harm}: the weights survived."
    else:
        harm += afterwards.said(optimization, bad, later, limits["recovered"])
    affected = bad if since is None else np.arange(len(bad)) >= since
    zeroed = hidden_nan.zeroed(optimization.process)
    harm += hidden_nan.WORDS[zeroed] * hidden
    remedy = nonfinite_remedy.remedy(optimization, first, re.search("blew up|learning rate rose", before) is not None)
    return Finding(
        rule=RULE.id,
        severity="warning" if recovered else "critical",
        confidence="likely" if hidden and zeroed else "certain",
        title=f"The loss{timing.name_of(optimization)} {told} {when} step {begin:,}",
        summary=f"{before}{remedy.why} {harm}",
        fix=remedy.fix,
        fix_code=remedy.code,
        first_step=begin,
        last_step=timing.step_at(optimization, int(np.flatnonzero(bad)[-1])),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("first loss that is not finite", what, "", "finite", "a loss is a number"),
            Evidence("steps without a finite loss", total, "steps"),
            *([Evidence("logged in their place", 0.0, "", None, hidden_nan.WHO[zeroed])] * hidden),
            Evidence("last finite loss before", next(filter(np.isfinite, steps["loss"][:first][::-1].tolist()), None)),
            *(Evidence("its batch, as logged", batch) for batch in logged.batches(optimization.process, [first])),
        ],
        cost=timing.cost_of(optimization, affected),
        location=remedy.place or optimization.loss_location,
        seen_at=optimization.loss_location,
        diff=remedy.diff,
        charts=pictures.loss(optimization, marks) + pictures.grad_norm(optimization, marks),
        false_alarm="A loss that is meant to be Inf for rejected samples, and is never used for a step, is harmless.",
    )


def _given_up(process: Process, limits: Limits) -> list[Finding]:
    """Losses that were no number and never reached a backward, because the loop looks for that."""
    rows = process.events_of("loss-given-up")
    if not rows or not process.optimizations:
        return []
    optimization = process.longest
    found = given_up.told_of(process, optimization, rows, limits)
    finding = Finding(
        rule=RULE.id,
        severity="critical" if found.for_good else "info" if found.rare else "warning",
        confidence="certain" if found.sure else "likely",
        title=found.title,
        summary=found.told,
        fix=nonfinite_remedy.FIX,
        fix_code=nonfinite_remedy.FIX_CODE,
        first_step=found.begin,
        evidence=[Evidence("losses that were given up", len(rows), "losses", 0, "every loss is a number")],
        location=process.location("loss") or optimization.loss_location,
        false_alarm="A loss that is meant to be Inf for rejected samples.",
    )
    return [finding]


RULE = Rule(
    id="loss-nonfinite",
    family="loss",
    severity="critical",
    title="The loss is not finite",
    about="Once the loss is NaN or Inf its gradients are too, and one optimizer step spreads them into every weight.",
    check=check,
    verify="Record the run again: every loss is a number.",
    excluded=("Steps that a loss scaler skipped are not counted.",),
    absent="The run has no loss.",
    needs=(("steps.loss",),),
    thresholds=(
        Threshold("recovered", 5, "steps", "weights that hold a NaN give no finite loss ever again"),
        Threshold("share", 0.1, "share", "a bad batch now and then is below a tenth of the steps"),
        Threshold("lost", 0.05, "share", "derived: one batch in twenty costs as much time; fewer are stray samples"),
    ),
    not_when="Steps that GradScaler skipped.",
)
