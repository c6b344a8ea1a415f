"""reported-loss-mismatch: the loss that the script logs is a multiple of the one that it optimizes, or an old sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.optimization import style
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.ending.reported_loss_mismatch import by_samples, collected, reports, running
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rules.ending.reported_loss_mismatch.reports import Match, Series
DIVIDED = (
    " A step accumulates {parts} micro-batches: a mean over losses that are divided by {parts} already is smaller by "
    "that factor."
)
ANEW = "a running sum of the losses{}, which goes on after it is logged, and begins anew at other times only"
BY_EPOCH = (
    "the sum of all losses since the start, over the number of batches in the epoch so far{}: the sum is never reset, "
    "and its divisor is"
)
SUMS = {  # title, what the values are, what of them was compared with losses
    "sum": ("never reset", "the sum of all losses since the start{}: it is never reset, so it only grows",
            "logged over the sum of all losses"),
    "growth": ("not reset when it is logged", ANEW, "growth of the logged value over the losses that were added"),
    "epochs": ("never reset, divided by the batches of one epoch", BY_EPOCH, "logged over that quotient"),
}  # fmt: skip
TAKE_BACK = "Log losses as they are before they are divided for accumulation, or times {parts}."


def check(process: Process, limits: Limits) -> Outcome:
    """Each logged series against the losses of the steps between two of its values."""
    if not reports.beside(process):
        return Skipped(
            style.several(process, "several optimizers step, so that no loss is the only one"), "not-applicable"
        )
    series = reports.of(process)
    if not series:
        return Skipped("no training loss was handed to a logger", "not-applicable")
    losses = process.longest.steps["loss"]
    reasons = []
    for one in series:
        if len(one.values) < limits["values"]:
            reasons.append(f"{one.name} was logged {plural(len(one.values), 'time')}")
            continue
        inside = reports.among(one, losses)
        match = reports.multiple(one, losses, limits["spread"])
        if match is not None and match.kind not in SUMS and inside >= limits["inside"]:
            match = None  # a sum divided by the length of an epoch may pass through the range of the losses
        match = match or reports.growing(one, losses, limits["spread"], limits["values"])
        begins = process.longest.steps["loader_first"] == 1
        match = match or reports.over_epochs(one, losses, begins, limits["spread"], limits["values"])
        if match is None or (match.kind not in SUMS and max(match.factor, 1 / match.factor) < limits["factor"]):
            reasons.append(f"{one.name} lies among the losses of its steps, or is no multiple of them")
        else:
            return [_finding(process, one, match, limits)]
    if all(len(one.values) < limits["values"] for one in series):
        return Skipped("; ".join(reasons))
    return Passed("; ".join(reasons))


def _finding(process: Process, series: Series, match: Match, limits: Limits) -> Finding:
    whole, part = number(match.factor), number(1 / match.factor)
    times = whole if match.factor >= 1 or part == "1" else f"1/{part}"
    scaled = "" if times == "1" else f", times {times}"
    title, sums, compared = SUMS.get(match.kind, ("", "", ""))
    what = (
        sums.format(scaled)
        or {
            "mean": f"{times} times the mean loss of the steps since the value before",
            "last": f"{times} times the loss of its step",
        }[match.kind]
    )
    remedy = _remedy(process, match, limits["spread"])
    return Finding(
        rule=RULE.id,
        severity="info",
        confidence="likely",
        title=f"The logged {series.name} is " + (f"a sum that is {title}" if sums else f"{times} times the loss"),
        summary=(
            f"All {len(series.values)} values of {series.name} that were handed to {series.logger} are {what}. "
            "Training itself is not affected, but this curve cannot be compared with other runs, batch sizes or "
            f"logging intervals.{remedy.why}"
        ),
        fix=remedy.fix,
        fix_code=remedy.code,
        diff=remedy.diff,
        first_step=int(max(series.done[0], 1)),
        last_step=int(max(series.done[-1], 1)),
        evidence=[
            Evidence(compared, match.factor) if sums else _times(match.factor, limits),
            Evidence("spread of that factor", match.spread, "share", *limits.against("spread"), role="basis"),
            Evidence("values logged", len(series.values), "", *limits.against("values"), role="basis"),
            Evidence("last value logged", float(series.values[-1])),
            Evidence("last loss measured", float(process.longest.steps["loss"][-1])),
        ],
        location=remedy.place or process.longest.loss_location,
        seen_at=process.longest.loss_location,
        charts=pictures.loss(process.longest),
        false_alarm="A logged loss that is weighted or scaled on purpose, for example a sum over a batch.",
    )


def _remedy(process: Process, match: Match, spread: float) -> Remedy:
    reset = running.reset(process, match.kind == "epochs")
    if match.kind in SUMS:
        return Remedy(reset.fix, reset.code, reset.place)
    if parts := reports.micro_batches(process, match, spread):
        why, fix = DIVIDED.format(parts=parts), TAKE_BACK.format(parts=parts)
        own = collected.divided(process, process.longest.loss_location)
        if own is not None:
            return Remedy(fix, own.code, own.place, own.diff, why)
        code = f"losses.append(loss.item() * {parts})  # where the divided loss is collected"
        return Remedy(fix, code, reset.place, why=why)
    counted = by_samples.of(process.longest, match.factor)
    return Remedy(counted.fix, counted.code, reset.place, why=counted.said)


def _times(factor: float, limits: Limits) -> Evidence:
    name, times = ("logged over measured loss", factor) if factor >= 1 else ("measured over logged loss", 1 / factor)
    return Evidence(name, times, "times", *limits.against("factor"))


RULE = Rule(
    id="reported-loss-mismatch",
    family="loss",
    severity="info",
    title="The logged loss is not the one that was optimized",
    about="A logged loss that is a multiple of the optimized one, or a sum that is never reset, misleads anyone who "
    "compares runs.",
    check=check,
    verify="Record the run again: the logged loss lies among the losses of its steps.",
    absent="The program passes no training loss to a logger.",
    needs=(("scalars.value", "steps.loss"),),
    thresholds=(
        Threshold("values", 5, "values", "derived: four ratios that agree with a fifth to 0.2% do not by chance"),
        Threshold("inside", 0.5, "share", "derived: smoothed and weighted means lie between losses, most of them"),
        Threshold("spread", 0.002, "share", "derived: rounding to three digits; weights that vary spread more"),
        Threshold("factor", 1.2, "times", "derived: a last batch of another size moves a mean by less"),
    ),
    not_when="Smoothed or weighted means, terms of the loss, several optimizers, fewer than five values.",
)
