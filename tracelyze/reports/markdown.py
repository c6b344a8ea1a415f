"""The diagnosis as a comment for a ticket: 25 lines that stand for themselves, and everything else in one fold."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Final

from tracelyze import formatting
from tracelyze.reports import escaping
from tracelyze.reports.escaping import markdown as plain
from tracelyze.reports.escaping import markdown_code
from tracelyze.reports.wording import rank_words, run_words, story, tracebacks, words
from tracelyze.reports.wording.plain_tracebacks import folded

if TYPE_CHECKING:
    from tracelyze.diagnosis import Check, Diagnosis, Evidence, Finding, Location
    from tracelyze.reports.wording.story import Chapter

LIMIT: Final = 60_000
"""Bytes. GitHub takes comments of up to 65,536 characters."""
LINES: Final = 25
"""Lines of a comment before its fold."""

_LONGEST: Final = 2_000  # characters of one text
_LEAD: Final = 400  # of the summary in the comment
_LONGEST_CELL: Final = 300
_CODE: Final = 6  # lines of code in the comment; what is longer stands whole in the fold
_NUMBERS: Final = 3
_TRACEBACK: Final = 60  # lines
_SIGNS: Final = {"critical": "🔴", "warning": "🟠", "info": "🔵", "ok": "🟢", "unknown": "⚪"}


def render(diagnosis: Diagnosis, full: bool = False) -> str:
    """The comment. With `full` nothing is folded away. At most `LIMIT` bytes.

    What does not fit is left out in whole sections, from the end, and the last line says so.
    """
    chapters = story.chapters(diagnosis)
    brief = _brief(diagnosis, chapters)
    details = [_details(chapter, diagnosis.run.ranks) for chapter in chapters]
    details += [_ranks(diagnosis), *_checks(diagnosis), _run(diagnosis)]
    details = [section for section in details if section]
    kept = _fitting(details, LIMIT - len(brief.encode()) - 300)
    if full:
        return "\n\n".join([brief, *kept]) + "\n"
    fold = ["<details><summary>All evidence, checks and facts of the run</summary>", *kept, "</details>"]
    return "\n\n".join([brief, *(fold if kept else [])]) + "\n"


def _ranks(diagnosis: Diagnosis) -> str:
    """What is odd about ranks that should agree."""
    odd = [f"- {_words(said)}" for said in rank_words.odd(diagnosis)]
    return "\n".join(["### Ranks that should agree", "", *odd]) if odd else ""


def _fitting(sections: list[str], room: int) -> list[str]:
    kept: list[str] = []
    for section in sections:
        room -= len(section.encode()) + 2
        if room < 0:
            left = len(sections) - len(kept)
            return [*kept, f"_{left} more sections do not fit a comment; the HTML report holds them._"]
        kept.append(section)
    return kept


def _brief(diagnosis: Diagnosis, chapters: list[Chapter]) -> str:
    """Verdict, since when, cost, line, fix and the strongest numbers of the first root cause."""
    lines = [f"## {_SIGNS[diagnosis.verdict]} {_words(words.verdict(diagnosis))}"]
    if not chapters:
        return "\n\n".join([*lines, *_notes(diagnosis)])
    chapter = chapters[0]
    finding = chapter.root.finding
    kind = "Worth knowing" if finding.severity == "info" else words.CAUSE[finding.confidence]
    others = len(chapters) - 1
    more = f" · {formatting.plural(others, 'other finding')} below" if others else ""
    title = f": {_words(finding.title)}" if words.verdict(diagnosis) != finding.title else ""
    lines.append(f"**{words.SEVERITY[finding.severity]} · {kind}**{title} ({markdown_code(finding.rule)}){more}")
    lines.append(_words(_lead(finding.summary)))
    lines.append("\n".join(_facts(finding, chapter, diagnosis)))
    code = _code(finding)
    if code and code.count("\n") <= _CODE + 1 and len(code) <= _LONGEST:
        lines.append(code)
    return "\n\n".join([*lines, *_notes(diagnosis)])


def _notes(diagnosis: Diagnosis) -> list[str]:
    return [f"> {_words(note)}" for note in words.notes(diagnosis)[:1]]


def _lead(summary: str) -> str:
    """The first sentences of a summary that fit."""
    if len(summary) <= _LEAD:
        return summary
    cut = summary[:_LEAD].rfind(". ")
    return summary[: cut + 1] if cut > 0 else escaping.shortened(summary, _LEAD)


def _facts(finding: Finding, chapter: Chapter, diagnosis: Diagnosis) -> list[str]:
    since = [
        part for part in (words.onset(finding), run_words.clock(finding.first_at)) if part not in ("", "not known")
    ]
    affected = words.ranks(finding, diagnosis.run.ranks)
    if since:
        lines = [f"- **Since** {', '.join([*since, affected] if affected else since)}"]
    else:
        lines = [f"- **Where** {affected}"] if affected else []
    lines += [f"- **Cost** {words.cost(finding)}"] if words.cost(finding) else []
    if finding.location is not None:
        lines += [f"- **Seen at** {_line(finding.seen_at)}"] if finding.seen_at is not None else []
        lines.append(f"- **{words.place_heading(finding)}** {_line(finding.location)}")
    numbers = [one for one in finding.evidence if one.threshold is not None][:_NUMBERS]
    lines += [f"- **Measured** {'; '.join(_number(one) for one in numbers)}"] if numbers else []
    if chapter.consequences:
        followed = [_words(anchored.finding.title) for anchored in chapter.consequences[:_NUMBERS]]
        rest = len(chapter.consequences) - len(followed)
        lines.append(f"- **Followed by** {'; '.join(followed)}" + (f" and {rest} more" if rest else ""))
    lines += [f"- **Fix** {_words(finding.fix)}"] if finding.fix.strip() else []
    lines += [f"- **To verify** {_words(finding.verify)}"] if finding.verify else []
    return lines


def _line(location: Location) -> str:
    """A line's place and its text."""
    source = location.source.strip()
    place = markdown_code(escaping.shortened(words.place(location), _LONGEST_CELL))
    return place + (f": {markdown_code(escaping.shortened(source, _LONGEST_CELL))}" if source else "")


def _number(one: Evidence) -> str:
    limit = escaping.shortened(words.limit(one), _LONGEST_CELL)
    said = escaping.shortened(f"{one.name}: {words.value(one)}", _LONGEST_CELL)
    return plain(said) + (f" ({plain(limit)})" if limit else "")


def _details(chapter: Chapter, of_ranks: int) -> str:
    """Everything about a root cause."""
    finding = chapter.root.finding
    head = f"### {_SIGNS[finding.severity]} {words.SEVERITY[finding.severity]}: {_words(finding.title)}"
    facts = [f"**since** {words.onset(finding)}"]
    facts += [f"**cost** {words.cost(finding)}"] if words.cost(finding) else []
    affected = ", ".join(part for part in (words.steps(finding), words.ranks(finding, of_ranks)) if part)
    facts += [f"**affected** {affected}"] if affected else []
    facts += [f"**confidence** {finding.confidence}", markdown_code(finding.rule)]
    parts = [head, _words(finding.summary), " · ".join(facts), *_seen(finding), *_repair(finding)]
    parts += [_evidence(finding.evidence)] if finding.evidence else []
    for one in filter(tracebacks.is_text, finding.evidence):
        parts += [f"{plain(one.name)}:", escaping.markdown_block(escaping.shortened(str(one.value).strip(), _LONGEST))]
    parts += [_block("\n".join(folded(text, _TRACEBACK)), "") for text in _tracebacks(finding)]
    if finding.excluded:
        parts.append("\n".join(["**Excluded:**", "", *(f"- {_words(one)}" for one in finding.excluded)]))
    parts += [_following(chapter)] if chapter.consequences else []
    parts += [f"_Not a fault if: {_words(finding.false_alarm)}_"] if finding.false_alarm else []
    return "\n\n".join(part for part in parts if part)


def _seen(finding: Finding) -> list[str]:
    if finding.location is None:
        return []
    seen = [f"**Seen at** {_line(finding.seen_at)}"] if finding.seen_at is not None else []
    place = f"**{words.place_heading(finding)}** {markdown_code(words.place(finding.location))}:"
    if finding.excerpt is None:
        return [*seen, place, _block(finding.location.source)] if finding.location.source.strip() else [*seen, place]
    numbered = [
        f"{'>' if number == finding.location.line else ' '} {number:>5}  {line}"
        for number, line in enumerate(finding.excerpt.lines, finding.excerpt.first_line)
    ]
    return [*seen, place, _block("\n".join(numbered), "")]


def _repair(finding: Finding) -> list[str]:
    parts = [f"**Fix:** {_words(finding.fix)}"] if finding.fix.strip() else []
    code = _code(finding)
    if code and finding.diff is None:
        parts.append("Example:")
    parts += [code] if code else []
    return parts + ([f"**To verify:** {_words(finding.verify)}"] if finding.verify else [])


def _code(finding: Finding) -> str:
    """The edit where the rule knows it, else the example; empty without either."""
    diff = finding.diff
    if diff is not None:
        lines = [
            f"@@ {diff.file}:{diff.line} @@",
            *(f"-{one}" for one in diff.removed),
            *(f"+{one}" for one in diff.added),
        ]
        return escaping.markdown_block(
            "\n".join(escaping.one_line(line) if "\n" in line else line for line in lines), "diff"
        )
    return _block(finding.fix_code) if finding.fix_code.strip() else ""


def _evidence(evidence: list[Evidence]) -> str:
    lines = ["| Measured | Value | Limit | Basis |", "|---|---|---|---|"]
    for one in [one for one in evidence if not tracebacks.is_traceback(one) and not tracebacks.is_text(one)][:30]:
        cells = (one.name, words.value(one), words.limit(one), one.source)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def _tracebacks(finding: Finding) -> list[str]:
    return [str(one.value) for one in finding.evidence if tracebacks.is_traceback(one)]


def _following(chapter: Chapter) -> str:
    lines = ["**What followed from it:**", ""]
    for anchored in chapter.consequences:
        finding = anchored.finding
        since = f"step {finding.first_step:,}" if finding.first_step is not None else "step unknown"
        lines.append(f"- {since}: {_words(finding.title)} ({markdown_code(finding.rule)})")
    return "\n".join(lines)


def _checks(diagnosis: Diagnosis) -> list[str]:
    if not diagnosis.checks:
        return []
    groups = (
        ("need more data: whether the run has these faults is not known", story.needs_more(diagnosis)),
        ("do not apply: the run does nothing of the kind", story.not_applicable(diagnosis)),
        ("passed: these faults were looked for, and not found", story.checks(diagnosis, "passed")),
    )
    parts = [f"### Checks\n\n{words.tally(diagnosis)}."]
    for name, checks in groups:
        if checks:
            parts.append("\n".join([f"**{len(checks):,} {name}**", "", *map(_check, checks)]))
    return ["\n\n".join(parts)]


def _check(check: Check) -> str:
    record = f" Record it with {markdown_code(check.command)}." if check.command else ""
    reason = formatting.capitalized((check.reason or "no reason given").rstrip("."))
    outcome = {"passed": "not found: ", "fired": "found: "}.get(check.status, "not checked: ")
    return f"- {outcome}{_words(check.title or check.rule)}. {_words(reason)}.{record}"


def _run(diagnosis: Diagnosis) -> str:
    run = diagnosis.run
    parts = [words.size(run), formatting.plural(run.ranks, "rank"), run_words.code(run)]
    parts += [_words(words.ended(run)) or formatting.duration(run.duration_s)]
    lines = ["### Run", "", f"- {', '.join(part for part in parts if part)}"]
    if run.command:
        lines.append(f"- command: {markdown_code(escaping.shortened(words.command(run.command), _LONGEST))}")
    started = f", started {plain(run_words.date(run.started_at))}" if run.started_at else ""
    lines.append(f"- run directory: {markdown_code(run.path)}{started}")
    lines += [f"- {_words(note)}" for note in words.notes(diagnosis)[:20]]
    lines += [f"- {_cell(name)}: {_cell(value)}" for name, value in list(run.environment.items())[:40]]
    recorded = words.recording(diagnosis)
    lines += [f"- {_words(recorded + words.less_often(run))}"] if recorded else []
    lines.append(f"- tracelyze {_cell(diagnosis.tracelyze_version)}")
    return "\n".join(lines)


def _words(text: str) -> str:
    """Text on one line; what stands between backticks in it is code."""
    parts = re.split("`([^`]+)`", escaping.shortened(escaping.one_line(text), _LONGEST))
    return "".join(
        markdown_code(part) if index % 2 else plain(part, keep_ends=True) for index, part in enumerate(parts)
    )


def _cell(text: str) -> str:
    return plain(escaping.shortened(escaping.one_line(text), _LONGEST_CELL))


def _block(code: str, language: str = "python") -> str:
    """Code as it is, without the indentation that all of its lines share; it is never cut."""
    return escaping.markdown_block(textwrap.dedent(code.strip("\n")), language)
