"""The comparison as Markdown, for a ticket or a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.reports import escaping
from tracelyze.reports.comparison import words

if TYPE_CHECKING:
    from tracelyze.comparison import Change, Comparison, Section

_ROWS: Final = 12
_NAME: Final = 90


def render(comparison: Comparison) -> str:
    """Headline, both sides, a table for each section, findings, settings."""
    lines = [f"## {escaping.markdown(comparison.headline)}", ""]
    lines += [escaping.markdown(comparison.lead), ""] if comparison.lead else []
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        lines.append(f"- **{letter}**: {escaping.markdown(side.path)} ({escaping.markdown(words.side(side))})")
    lines += [f"- Note: {escaping.markdown(note)}" for note in comparison.notes]
    for section in comparison.sections:
        lines += _table(section)
    if comparison.findings:
        lines += ["", "### Findings", "", "| | finding | rule | cost, of the time |", "|---|---|---|---|"]
        lines += [
            f"| {words.FATE[one.fate]} | {escaping.markdown(one.title)} | {escaping.markdown(one.rule)} | "
            f"{words.finding(one)} |"
            for one in comparison.findings
        ]
    if comparison.settings:
        lines += ["", "### Settings that differ", "", "| setting | A | B |", "|---|---|---|"]
        lines += [
            f"| {escaping.markdown(one.name)} | {_cell(one.before)} | {_cell(one.after)} |"
            for one in comparison.settings
        ]
    if words.has_noise(comparison):
        lines += ["", escaping.markdown(words.NOISE)]
    return "\n".join(lines) + "\n"


def _table(section: Section) -> list[str]:
    lines = ["", f"### {escaping.markdown(section.title)}", "", "| | A | B | B - A | | |", "|---|--:|--:|--:|--:|---|"]
    return lines + [_row(change) for change in section.changes[:_ROWS]]


def _row(change: Change) -> str:
    cells = (
        _cell(change.name),
        words.value(change, change.before),
        words.value(change, change.after),
        words.difference(change),
        words.relative(change),
        words.meaning(change),
    )
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return escaping.markdown(escaping.shortened(text, _NAME))
