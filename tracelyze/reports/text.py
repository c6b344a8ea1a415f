"""The diagnosis as lines for a terminal: the answer, the cause, what followed, the line, the repair."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from tracelyze import formatting
from tracelyze.reports import escaping, story, words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.diagnosis import Diagnosis, Evidence, Finding
    from tracelyze.reports.story import Chapter

_NUMBERS = 4  # of the evidence
_REASONS = 3  # why checks could not be made
_LONGEST = 600  # characters of one text
_CODE_LINES = 20
_COLORS = {"critical": "31", "warning": "33", "info": "34", "ok": "32", "unknown": ""}
_SIGNS = {"critical": "✖", "warning": "▲", "info": "●", "ok": "✔", "unknown": "?"}


def render(diagnosis: Diagnosis, color: bool = False, width: int = 88) -> str:
    """The summary, no line longer than `width` columns where words can be wrapped.

    Whatever the run's strings hold, the only escape sequences in it are the colours asked for by `color`.
    """
    page = _Page(color, max(40, width))
    page.heading(diagnosis)
    chapters = story.chapters(diagnosis)
    for note in diagnosis.run.notes:
        page.words(f"Note: {note}", "  ")
    for chapter in chapters:
        page.chapter(chapter, diagnosis.run.ranks)
    page.checks(diagnosis)
    if recorded := words.recording(diagnosis.run):
        page.words(recorded, "", dim=True)
    return "\n".join(page.lines) + "\n"


def color_wanted(environment: Mapping[str, str], is_terminal: bool) -> bool:
    """Whether to colour: a non-empty NO_COLOR says no, then FORCE_COLOR yes, else only a terminal that is not dumb."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_terminal and environment.get("TERM") != "dumb"


class _Page:
    """Lines as they are laid out."""

    def __init__(self, color: bool, width: int) -> None:
        self.color = color
        self.width = width
        self.lines: list[str] = []

    def heading(self, diagnosis: Diagnosis) -> None:
        sign, color = _SIGNS[diagnosis.verdict], _COLORS[diagnosis.verdict]
        self.words(f"{sign} {words.verdict(diagnosis)}", "", code=color, bold=True, hanging="  ")
        run = diagnosis.run
        facts = [formatting.plural(run.steps, "step")]
        facts += [formatting.plural(run.ranks, "rank")] if run.ranks > 1 else []
        facts += [formatting.duration(run.duration_s)] if run.duration_s is not None else []
        self.words(f"{escaping.one_line(run.path)}: {', '.join(facts)}{words.ended(run)}", "  ", dim=True)

    def chapter(self, chapter: Chapter, of_ranks: int) -> None:
        finding = chapter.root.finding
        kind = "Worth knowing" if finding.severity == "info" else "Root cause"
        sign = _SIGNS[finding.severity]
        self.lines.append("")
        self.words(f"{sign} {kind}: {finding.title}", "", code=_COLORS[finding.severity], bold=True, hanging="  ")
        where = ", ".join(part for part in (words.steps(finding), words.ranks(finding, of_ranks)) if part)
        label = f"{words.SEVERITY[finding.severity].lower()}, {finding.confidence}, {finding.rule}"
        self.words(label + (f"; {where}" if where else ""), "  ", dim=True)
        self.words(finding.summary, "  ")
        for evidence in finding.evidence[:_NUMBERS]:
            self.words(_number(evidence), "    ", dim=True, hanging="      ")
        if words.cost(finding):
            self.words(f"Cost so far: {words.cost(finding)}", "  ")
        self.repair(finding)
        self.consequences(chapter)

    def repair(self, finding: Finding) -> None:
        if finding.location is not None:
            self.words(f"At {words.place(finding.location)}", "  ")
            self.code(finding.location.source, "    ", "31")
        if finding.fix.strip():
            self.words(f"Fix: {finding.fix}", "  ")
        self.code(finding.fix_code, "    ", "32")

    def consequences(self, chapter: Chapter) -> None:
        if not chapter.consequences:
            return
        self.lines.append(self.paint("  What followed from it", "", "1"))
        for told in chapter.consequences:
            finding = told.finding
            since = f"step {finding.first_step:,}" if finding.first_step is not None else "step unknown"
            self.words(f"{since:>12}  {finding.title} ({finding.rule})", "  ", hanging=" " * 16)

    def checks(self, diagnosis: Diagnosis) -> None:
        if not diagnosis.checks:
            return
        self.lines.append("")
        self.words(f"Checks: {words.tally(diagnosis)}.", "")
        groups = story.by_reason(story.checks(diagnosis, "skipped"))
        for reason, group in list(groups.items())[:_REASONS]:
            self.words(f"{len(group)} not made: {reason}", "  ", dim=True, hanging="    ")
        if len(groups) > _REASONS:
            self.words(f"and {formatting.plural(len(groups) - _REASONS, 'more reason')}", "  ", dim=True)

    def words(
        self, text: str, indent: str, code: str = "", bold: bool = False, dim: bool = False, hanging: str | None = None
    ) -> None:
        """Wrapped text; every paragraph of it is one."""
        style = "1" if bold else "2" if dim else ""
        for paragraph in escaping.shortened(escaping.printable(text), _LONGEST).splitlines():
            wrapped = textwrap.wrap(
                paragraph.expandtabs(4),
                self.width,
                initial_indent=indent,
                break_on_hyphens=False,
                break_long_words=False,  # a path is to be copied whole
                subsequent_indent=indent if hanging is None else hanging,
            )
            self.lines += [self.paint(line, code, style) for line in wrapped]

    def code(self, text: str, indent: str, code: str) -> None:
        """Lines as they are, cut at the edge rather than wrapped."""
        lines = textwrap.dedent(escaping.printable(text)).strip("\n").expandtabs(4).splitlines() if text.strip() else []
        for line in lines[:_CODE_LINES]:
            room = self.width - len(indent)
            shown = line if len(line) <= room else line[: room - 1] + "…"
            self.lines.append(indent + self.paint(shown, code, ""))

    def paint(self, text: str, code: str, style: str) -> str:
        codes = ";".join(part for part in (style, code) if part)
        return f"\x1b[{codes}m{text}\x1b[0m" if self.color and codes else text


def _number(evidence: Evidence) -> str:
    said = f"{evidence.name}: {escaping.one_line(formatting.quantity(evidence.value, evidence.unit))}"
    threshold = escaping.one_line(words.threshold(evidence))
    return f"{said} (threshold {threshold})" if threshold else said
