"""How the reports say things: severities, spans of steps, ranks, costs, the verdict."""

from __future__ import annotations

import math
import re
import shlex
from typing import TYPE_CHECKING, Final

from tracelyze import formatting
from tracelyze.reports import escaping

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.diagnosis import Diagnosis, Evidence, Finding, Location, RunFacts

SEVERITY: Final = {"critical": "Critical", "warning": "Warning", "info": "Note", "ok": "OK", "unknown": "Unknown"}
CAUSE: Final = {"certain": "Root cause", "likely": "Likely cause", "possible": "Possible cause"}
KNOWN: Final = {
    "certain": "certain: recorded directly",
    "likely": "the best explanation of what was recorded",
    "possible": "other causes would explain the recording as well",
}
"""What heads a finding, and how it is known."""

ENDED: Final = {
    "finished": "finished",
    "exception": "ended in an exception",
    "interrupted": "was interrupted",
    "signal": "was ended by a signal",
    "vanished": "vanished without a message",
    "running": "was still running when it was read",
    "unknown": "not recorded",
}
WHOLE: Final = 0.995
"""From this share on, the cost is all of the time."""
_LEAD = 320  # characters of a summary that still read as a lead
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\d])")


def value(evidence: Evidence) -> str:
    """What was measured, with its unit, and of what it is a share."""
    said = formatting.quantity(evidence.value, evidence.unit)
    return f"{said} of {evidence.of}" if evidence.of and evidence.value is not None else said


def threshold(evidence: Evidence) -> str:
    """What the value was held against, with the unit of the value; empty where it was held against nothing."""
    if evidence.threshold is None:
        return ""
    of = f" of {evidence.of}" if evidence.of else ""
    if isinstance(evidence.threshold, str):
        return evidence.threshold
    if evidence.measure == "share" and 0 < evidence.threshold < 0.001:  # a limit is a number, however small
        return f"{formatting.number(evidence.threshold * 100)}%{of}"
    return formatting.quantity(evidence.threshold, evidence.unit) + of


def limit(evidence: Evidence) -> str:
    """`fires at ≥ 30%`: the threshold with the side on which the rule fires, or what is expected; empty without one."""
    said = threshold(evidence)
    if not said:
        return ""
    if evidence.role == "expected":
        return f"expected: {said}"
    if evidence.threshold == 0 and evidence.value == 0:
        return f"limit: {said}"  # which side of it counts is not known
    if evidence.threshold == 0 and evidence.fires_at:
        return f"fires {'above' if evidence.fires_at == '>=' else 'at or below'} {said}"
    sign = {">=": "≥ ", "<=": "≤ "}.get(evidence.fires_at, "")
    return f"fires at {sign}{said}" if sign else f"limit: {said}"


def lead(finding: Finding) -> str:
    """The first sentences of the summary; `rest_of_summary` has the others."""
    return _split(finding.summary)[0]


def rest_of_summary(finding: Finding) -> str:
    """What the lead leaves out."""
    return _split(finding.summary)[1]


def onset(finding: Finding) -> str:
    """Since when: the first step, and the time on the run's clock where it is known."""
    at = "" if finding.first_second is None else f"{formatting.duration(finding.first_second)} into the run"
    if finding.first_step is None:
        return at or "not known"
    return f"{finding.counts} {finding.first_step:,}" + (f", {at}" if at else "")


def steps(finding: Finding) -> str:
    """The steps that are affected."""
    first, last = finding.first_step, finding.last_step
    if first is None and last is None:
        return ""
    if first is None:
        return f"up to {finding.counts} {last:,}"
    if last is None:
        return f"from {finding.counts} {first:,} on"
    if first == last:
        return f"{finding.counts} {first:,}"
    return f"{finding.counts}s {first:,} to {last:,}"


def ranks(finding: Finding, of: int) -> str:
    """The ranks that are affected, in ranges; empty for the only rank there is."""
    listed = sorted(set(finding.ranks))
    if of <= 1 or not listed:
        return ""
    if len(listed) >= of:
        return "both ranks" if of == 2 else f"all {of:,} ranks"
    spans: list[list[int]] = []
    for rank in listed:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    said = [str(low) if low == high else f"{low} to {high}" for low, high in spans]
    shown = formatting.listed(said, most=8)
    return f"{'rank' if len(listed) == 1 else 'ranks'} {shown} of {of:,}"


def cost(finding: Finding) -> str:
    """What the fault cost so far; empty where it was not measured."""
    if finding.cost is None:
        return ""
    seconds, share = finding.cost.seconds, finding.cost.share
    known = [formatting.duration(seconds)] if seconds is not None else []
    if share is not None:
        known.append(f"{formatting.percent(share) if share <= WHOLE else 'all'} of {finding.cost.of}")
    return ", ".join(known)


def place_heading(finding: Finding) -> str:
    """What stands before the place of a finding: it is where to change something, or where the harm was seen."""
    return "Change at" if finding.seen_at is not None else "Seen at"


def place(location: Location) -> str:
    """`train.py:41 in train_step`."""
    return f"{location.file}:{location.line}" + (f" in {location.function}" if in_function(location) else "")


def in_function(location: Location) -> bool:
    """Whether the line stands in a function that is known, not at the top of its file."""
    return location.function not in ("", "<module>")


def margin(evidence: Evidence) -> str:
    """How far the value is from its threshold, as a factor; empty where that has no meaning."""
    value, threshold = evidence.value, evidence.threshold
    if isinstance(value, str | bool) or isinstance(threshold, str | bool) or value is None or threshold is None:
        return ""
    if not math.isfinite(value) or not math.isfinite(threshold) or value * threshold <= 0:
        return ""
    factor = value / threshold
    return f"{formatting.number(float(f'{factor:.2g}'))} \u00d7"


def verdict(diagnosis: Diagnosis) -> str:
    """The answer in one sentence: the title of the gravest finding, or what is known without one."""
    grave = [finding for finding in diagnosis.findings if finding.severity != "info"]
    if diagnosis.verdict == "unknown":
        return f"Nothing is known about this run. {diagnosis.verdict_reason}".rstrip()
    if grave:
        return grave[0].title
    passed = sum(check.status == "passed" for check in diagnosis.checks)
    return f"No fault found: {formatting.plural(passed, 'check')} passed. {diagnosis.verdict_reason}".rstrip()


def tally(diagnosis: Diagnosis) -> str:
    """How many checks fired, passed, do not apply and need more data; what there is none of is left out."""
    checks = diagnosis.checks
    skipped = [check for check in checks if check.status == "skipped"]
    absent = sum(check.why == "not-applicable" for check in skipped)
    counts = (
        (sum(check.status == "fired" for check in checks), "fired", "fired"),
        (sum(check.status == "passed" for check in checks), "passed", "passed"),
        (absent, "does not apply", "do not apply"),
        (len(skipped) - absent, "needs more data", "need more data"),
    )
    return ", ".join(f"{count:,} {one if count == 1 else many}" for count, one, many in counts if count)


def ended(run: RunFacts) -> str:
    """How the program ended and after how long; nothing where no program was watched: a trace, a log."""
    if run.exit.kind == "unknown":
        return ""
    comma = "," if run.exit.detail else ""
    return exit_of(run) + (f"{comma} after {formatting.duration(run.duration_s)}" if run.duration_s is not None else "")


def size(run: RunFacts) -> str:
    """How many steps there were; of several trainings in the longest, and of a log that leaves some out in all."""
    if run.trainings:
        trainings = len({training.name for training in run.trainings})
        return f"{formatting.plural(trainings, 'training')}, {formatting.plural(run.steps, run.counts)} in the longest"
    if run.last_step is not None:
        return f"{formatting.plural(run.last_step, run.counts)}, {run.steps:,} of them logged"
    return formatting.plural(run.steps, run.counts)


def notes(diagnosis: Diagnosis) -> list[str]:
    """What else is to be known about the record; what the verdict gives as its reason is not said again."""
    said = diagnosis.verdict_reason.rstrip(".").lower() if diagnosis.verdict == "unknown" else None
    return [note for note in diagnosis.run.notes if note.rstrip(".").lower() != said]


LONGEST_DETAIL: Final = 120  # characters of what an exception says, beside other facts


def exit_of(run: RunFacts) -> str:
    """How the program ended, with its code and the beginning and end of what it said."""
    said = ENDED.get(run.exit.kind, run.exit.kind)
    code = f" (exit code {run.exit.code})" if run.exit.code is not None else ""
    detail = formatting.abridged(escaping.one_line(run.exit.detail), LONGEST_DETAIL) if run.exit.detail else ""
    return f"{said}{code}" + (f": {detail}" if detail else "")


def command(arguments: Sequence[str]) -> str:
    """The command line as it can be typed again."""
    return shlex.join(arguments)


SHORT: Final = 0.02
"""Share of the step time from which on it matters that the entry of the hooks and the caches are not in it: what was
added was 1.3 to 2 times of that on steps of 1 to 50 ms, 3 times in a GAN of 1.3 ms a step (benchmarks/hooks.py)."""
VERY_SHORT: Final = 0.005  # seconds of a step on which it may have been 3 times


WORTH_SAYING: Final = 0.05  # seconds at the start of a run


def recording(diagnosis: Diagnosis) -> str:
    """One sentence on what recording cost, in time a step where that is known; empty if it was not measured."""
    run, step = diagnosis.run, _mean_step(diagnosis.run) or _median_step(diagnosis)
    if run.overhead is None:
        return ""
    share = formatting.percent(run.overhead)
    times, factor = ("three times", 3) if step is None or step < VERY_SHORT else ("twice", 2)
    most = f"up to {times} that" if factor * run.overhead <= 1 else "more"
    unseen = f" by its own clock, {most} in fact" if run.overhead >= SHORT else ""
    if step is None:
        return f"Recording took {share} of the step time{unseen}{_at_start(run)}."
    took, whole = formatting.duration(run.overhead * step), formatting.duration(step)
    return f"Recording took {took} of {whole} a step ({share}{unseen}){_at_start(run)}."


def _mean_step(run: RunFacts) -> float | None:
    """Seconds of the steps by which the cost of recording is told, which are not those drawn."""
    return run.overhead_per_step / run.overhead if run.overhead_per_step and run.overhead else None


def _median_step(diagnosis: Diagnosis) -> float | None:
    """Seconds of the median step, as drawn."""
    for chart in diagnosis.charts:
        known = sorted(value for value in chart.lines[0].y if value is not None) if chart.lines else []
        if chart.shows == "step-time" and known:
            return known[len(known) // 2] / 1000
    return None


def less_often(run: RunFacts) -> str:
    """What the budget turned down, and what that means for the result; empty if nothing."""
    slowed = run.turned_down()
    if not slowed:
        return ""
    rarest = max((signal.every or 0 for signal in slowed), default=0)
    were = f"{formatting.plural(len(slowed), 'signal')} {'was' if len(slowed) == 1 else 'were'}"
    apart = " (some of them at its beginning only)" if rarest >= run.steps else f" (up to {rarest:,} steps apart)"
    return (
        f" To keep that low, {were} looked at in fewer steps{apart if rarest else ''}: what came between may be missed "
        "there. Checks that lacked data say so; `collect --budget 5` looks more often."
    )


def _at_start(run: RunFacts) -> str:
    """What recording took before the run had settled, as the end of a sentence; empty if it is next to nothing."""
    if run.overhead_at_start is None or run.overhead_at_start < WORTH_SAYING:
        return ""
    return f", and {formatting.duration(run.overhead_at_start)} in all at the start"


def _split(summary: str) -> tuple[str, str]:
    text = escaping.shortened(escaping.printable(summary), 4000).strip()
    first, _, further = text.partition("\n\n")
    if len(first) <= _LEAD:
        return first, further
    sentences = _SENTENCE.split(first)
    taken = 1
    while taken < len(sentences) and len(" ".join(sentences[: taken + 1])) <= _LEAD:
        taken += 1
    rest = " ".join(sentences[taken:])
    return " ".join(sentences[:taken]), "\n\n".join(part for part in (rest, further) if part)
