"""Five lines of plain text for a chat or a ticket: verdict, since when and at what cost, where, fix, which run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze import formatting
from tracelyze.reports import escaping
from tracelyze.reports.wording import run_words, story, words

if TYPE_CHECKING:
    from tracelyze.diagnosis import Diagnosis, Finding
    from tracelyze.reports.wording.story import Chapter

_LONGEST = 300  # characters of a line


def lines(diagnosis: Diagnosis, chapters: list[Chapter]) -> list[str]:
    """At most five lines, each on its own."""
    if chapters:
        found = _of_finding(chapters[0].root.finding, len(chapters) - 1)
    else:
        passed, more = len(story.checks(diagnosis, "passed")), len(story.needs_more(diagnosis))
        known = diagnosis.verdict != "unknown" and passed > 0
        found = [
            "OK: no fault found" if known else "UNKNOWN: too little was recorded to check this run",
            f"{formatting.plural(passed, 'check')} passed, {more:,} need more data.",
        ]
    run = diagnosis.run
    size = f"{words.size(run)}, {formatting.plural(run.ranks, 'rank')}"
    facts = (
        run_words.program(run),
        run_words.date(run.started_at),
        size,
        run_words.device(run),
        run_words.code(run),
        run_words.ending(run),
    )
    found.append(f"Run: {', '.join(part for part in facts if part)}")
    return [escaping.shortened(escaping.one_line(line), _LONGEST) for line in found]


def _of_finding(finding: Finding, others: int) -> list[str]:
    more = f" (and {formatting.plural(others, 'other finding')})" if others else ""
    found = [f"{words.SEVERITY[finding.severity].upper()} {finding.rule}: {finding.title}{more}"]
    since = ", ".join(part for part in (words.onset(finding), run_words.clock(finding.first_at)) if part != "not known")
    cost = finding.cost
    parts = [f"Since {since}."] if since else []
    if cost is not None and cost.seconds is not None:
        parts.append(f"Cost: {formatting.duration(cost.seconds)} of training.")
    found += [" ".join(parts)] if parts else []
    if finding.location is not None:
        source = finding.location.source.strip()
        at = "At" if finding.seen_at is None else "Change at"
        found.append(f"{at} {words.place(finding.location)}" + (f": {source}" if source else ""))
    if finding.fix.strip():
        found.append(f"Fix: {finding.fix}")
    return found
