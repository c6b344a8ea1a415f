"""The diagnosis as a comment for a ticket: short enough for any tracker, and made of nothing but words and code."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Final

from tracelyze import formatting
from tracelyze.reports import escaping, story, words
from tracelyze.reports.escaping import markdown as plain
from tracelyze.reports.escaping import markdown_code

if TYPE_CHECKING:
    from tracelyze.diagnosis import Diagnosis, Evidence, Finding
    from tracelyze.reports.story import Chapter

LIMIT: Final = 60_000
"""Bytes. GitHub takes comments of up to 65,536 characters."""

_LONGEST: Final = 2_000  # characters of one text
_LONGEST_CELL: Final = 300
_SIGNS: Final = {"critical": "🔴", "warning": "🟠", "info": "🔵", "ok": "🟢", "unknown": "⚪"}


def render(diagnosis: Diagnosis) -> str:
    """The comment: heading, root causes with their repairs, what followed, what was checked. At most `LIMIT` bytes.

    What does not fit is left out in whole sections, from the end, and the last line says so.
    """
    chapters = story.chapters(diagnosis)
    sections = [_heading(diagnosis, chapters), *(_chapter(chapter, diagnosis.run.ranks) for chapter in chapters)]
    sections += [_checks(diagnosis), _run(diagnosis)]
    kept: list[str] = []
    size = 200  # for the last line
    for section in (section for section in sections if section):
        size += len(section.encode()) + 2
        if size > LIMIT:
            kept.append(
                f"_{len(sections) - len(kept)} more sections do not fit a comment; the HTML report holds them._"
            )
            break
        kept.append(section)
    return "\n\n".join(kept) + "\n"


def _heading(diagnosis: Diagnosis, chapters: list[Chapter]) -> str:
    lines = [f"## {_SIGNS[diagnosis.verdict]} {words.verdict(diagnosis)}"]
    if chapters:
        first = chapters[0].root.finding
        kind = "Worth knowing" if first.severity == "info" else "Root cause"
        more = f" (and {formatting.plural(len(chapters) - 1, 'more')[:-1] if len(chapters) > 2 else '1 more'})"
        lines.append(f"**{kind}: {_words(first.title)}**{more if len(chapters) > 1 else ''}")
    lines += [f"> {_words(note)}" for note in diagnosis.run.notes[:10]]
    return "\n\n".join(lines)


def _chapter(chapter: Chapter, of_ranks: int) -> str:
    finding = chapter.root.finding
    head = f"### {_SIGNS[finding.severity]} {words.SEVERITY[finding.severity]}: {_words(finding.title)}"
    facts = [f"**Since** {words.onset(finding)}", f"**confidence** {finding.confidence}", markdown_code(finding.rule)]
    affected = ", ".join(part for part in (words.steps(finding), words.ranks(finding, of_ranks)) if part)
    if affected:
        facts.insert(1, f"**affected** {affected}")
    if words.cost(finding):
        facts.insert(1, f"**cost so far** {words.cost(finding)}")
    parts = [head, _words(finding.summary), " · ".join(facts), *_repair(finding)]
    parts += [_evidence(finding.evidence)] if finding.evidence else []
    parts += [_following(chapter)] if chapter.consequences else []
    return "\n\n".join(part for part in parts if part)


def _repair(finding: Finding) -> list[str]:
    parts = [f"**What to change:** {_words(finding.fix)}"] if finding.fix.strip() else []
    if finding.location is not None:
        parts.append(f"Now, {markdown_code(words.place(finding.location))}:")
        parts += [_block(finding.location.source)] if finding.location.source.strip() else []
    if finding.fix_code.strip():
        parts += ["Instead:", _block(finding.fix_code)]
    return parts


def _evidence(evidence: list[Evidence]) -> str:
    lines = ["| Measured | Value | Threshold | Basis |", "|---|---|---|---|"]
    for one in evidence[:30]:
        cells = (one.name, formatting.quantity(one.value, one.unit), words.threshold(one), one.source)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def _following(chapter: Chapter) -> str:
    lines = ["**What followed from it:**", ""]
    for told in chapter.consequences:
        finding = told.finding
        since = f"step {finding.first_step:,}" if finding.first_step is not None else "step unknown"
        lines.append(f"- {since}: {_words(finding.title)} ({markdown_code(finding.rule)})")
    return "\n".join(lines)


def _checks(diagnosis: Diagnosis) -> str:
    if not diagnosis.checks:
        return ""
    lines = [f"### Checks\n\n{words.tally(diagnosis).capitalize()}."]
    passed = [
        f"- {_words(check.reason) or 'no reason given'} (looked for: {_words(check.title or check.rule)})"
        for check in story.checks(diagnosis, "passed")
    ]
    if passed:
        lines.append(_folded(f"{formatting.plural(len(passed), 'check')} passed", passed))
    skipped = [
        f"- {_words(reason) or 'no reason given'}: {'; '.join(_words(check.title or check.rule) for check in group)}"
        for reason, group in story.by_reason(story.checks(diagnosis, "skipped")).items()
    ]
    if skipped:
        lines.append(_folded("Not checked, and why", skipped))
    return "\n\n".join(lines)


def _folded(title: str, lines: list[str]) -> str:
    return "\n".join([f"<details><summary>{title}</summary>", "", *lines, "", "</details>"])


def _run(diagnosis: Diagnosis) -> str:
    run = diagnosis.run
    parts = [
        f"{formatting.plural(run.steps, 'step')}",
        formatting.plural(run.ranks, "rank"),
        formatting.duration(run.duration_s),
    ]
    lines = ["### Run", "", f"- {', '.join(parts)}{_words(words.ended(run))}"]
    if run.command:
        lines.append(f"- command: {markdown_code(escaping.shortened(words.command(run.command), _LONGEST))}")
    lines.append(
        f"- run directory: {markdown_code(run.path)}"
        + (f", started {_words(run.started_at)}" if run.started_at else "")
    )
    lines += [f"- {_cell(name)}: {_cell(value)}" for name, value in list(run.environment.items())[:40]]
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


def _block(code: str) -> str:
    return escaping.markdown_block(textwrap.dedent(escaping.shortened(code.strip("\n"), _LONGEST)), "python")
