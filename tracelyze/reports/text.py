"""The diagnosis as lines for a terminal: what ran, the verdict, the cause, since when, the line, the repair."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from tracelyze import formatting
from tracelyze.reports import escaping
from tracelyze.reports.wording import rank_words, remarks, run_words, story, tracebacks, words
from tracelyze.reports.wording.plain_tracebacks import folded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.diagnosis import Diagnosis, Evidence, Finding
    from tracelyze.reports.wording.story import Chapter

WIDTH: Final = 80
"""Columns, unless the terminal has fewer."""

_TEXT_LINES = 24  # of a table or stack
_NUMBERS = 3  # of the evidence
_LONGEST = 600  # characters of one text
_CODE_LINES = 20
_TRACEBACK_LINES = 24
_LABEL = 9  # columns of the words before a fact
_COLORS = {"critical": "31", "warning": "33", "info": "34", "ok": "32", "unknown": ""}
_SIGNS = {"critical": "✖", "warning": "▲", "info": "●", "ok": "✔", "unknown": "?"}


def render(diagnosis: Diagnosis, color: bool = False, width: int = WIDTH) -> str:
    """The summary, no line longer than `width` columns where words can be wrapped.

    Whatever the run's strings hold, the only escape sequences in it are the colours asked for by `color`.
    """
    page = _Page(color, max(40, width))
    page.run_line(diagnosis)
    chapters = story.chapters(diagnosis)
    if not chapters or diagnosis.verdict in ("ok", "unknown"):
        page.verdict(diagnosis)
    for note in words.notes(diagnosis):
        page.words(f"Note: {note}", "  ")
    for chapter in chapters:
        page.chapter(chapter, diagnosis)
    page.ranks(diagnosis)
    page.checks(diagnosis)
    if recorded := words.recording(diagnosis):
        page.words(recorded + words.less_often(diagnosis.run), "", dim=True)
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

    def run_line(self, diagnosis: Diagnosis) -> None:
        run = diagnosis.run
        parts = [escaping.one_line(run.path), run_words.date(run.started_at)]
        parts += [words.size(run)] if run.steps else []
        parts += [formatting.plural(run.ranks, "rank")] if run.ranks > 1 else []
        parts += [run_words.device(run), run_words.code(run), words.ended(run) or _lasted(diagnosis)]
        self.words(" · ".join(part for part in parts if part), "", dim=True, hanging="  ")

    def verdict(self, diagnosis: Diagnosis) -> None:
        self.lines.append("")
        sign, color = _SIGNS[diagnosis.verdict], _COLORS[diagnosis.verdict]
        self.words(f"{sign} {words.verdict(diagnosis)}", "", code=color, bold=True, hanging="  ")

    def chapter(self, chapter: Chapter, diagnosis: Diagnosis) -> None:
        finding = chapter.root.finding
        self.lines.append("")
        code = _COLORS[finding.severity]
        self.words(f"{_SIGNS[finding.severity]} {finding.title}", "", code=code, bold=True, hanging="  ")
        kind = "Worth knowing" if finding.severity == "info" else words.CAUSE[finding.confidence]
        self.words(f"{words.SEVERITY[finding.severity]} · {kind} · {finding.rule}", "  ", dim=True)
        self.words(finding.summary, "  ")
        where = ", ".join(part for part in (_affected(finding), words.ranks(finding, diagnosis.run.ranks)) if part)
        since = ", ".join(part for part in (words.onset(finding), run_words.clock(finding.first_at)) if part)
        if since != "not known":
            self.fact("Since", since + (f" ({where})" if where else ""))
        if words.cost(finding):
            self.fact("Cost", words.cost(finding))
        for position, evidence in enumerate(_numbers(finding)):
            self.fact("Because" if position == 0 else "", _number(evidence))
        self.consequences(chapter)
        self.place(finding)
        self.repair(finding)

    def ranks(self, diagnosis: Diagnosis) -> None:
        odd = rank_words.odd(diagnosis)
        self.lines += [""] if odd else []
        for said in odd:
            self.words(said, "", hanging="  ")

    def fact(self, label: str, text: str) -> None:
        """A labelled line; what is wrapped stands below its beginning."""
        hanging = "  " + " " * (_LABEL + 1)
        head = f"  {label:<{_LABEL}} "
        self.words(text, head, hanging=hanging)

    def place(self, finding: Finding) -> None:
        for evidence in finding.evidence:
            if tracebacks.is_traceback(evidence):
                self.lines.append("")
                self.verbatim(folded(str(evidence.value), _TRACEBACK_LINES), "    ", "")
        texts = [one for one in finding.evidence if tracebacks.is_text(one)] if not finding.charts else []
        for evidence in texts[:1]:
            self.fact("Seen", f"{evidence.name}:")
            self.verbatim(escaping.printable(evidence.value).splitlines()[:_TEXT_LINES], "    ", "")
        if finding.location is None:
            return
        if finding.seen_at is not None:
            source = finding.seen_at.source.strip()
            self.fact("Seen at", words.place(finding.seen_at) + (f": {source}" if source else ""))
        self.fact(words.place_heading(finding), words.place(finding.location))
        excerpt = finding.excerpt
        if excerpt is None:
            self.code(finding.location.source, "    ", "31")
            return
        for offset, line in enumerate(textwrap.dedent("\n".join(excerpt.lines).expandtabs(4)).split("\n")):
            number = excerpt.first_line + offset
            here = number == finding.location.line
            shown = f"{'>' if here else ' '} {number:>5}  {line}"
            below = " " * min(len(shown) - len(line.lstrip()) + 4, self.width // 2)
            self.verbatim([shown], "  ", "31" if here else "2", below)

    def repair(self, finding: Finding) -> None:
        if finding.fix.strip():
            self.fact("Fix", finding.fix)
        if finding.diff is not None:
            self.verbatim([f"@@ {finding.diff.file}:{finding.diff.line}"], "    ", "2")
            self.whole([f"-{line}" for line in finding.diff.removed], "    ", "31")
            self.whole([f"+{line}" for line in finding.diff.added], "    ", "32")
        elif finding.fix_code.strip():
            self.fact("Example", "")
            self.code(finding.fix_code, "    ", "32")
        if finding.verify:
            self.fact("Verify", finding.verify)

    def consequences(self, chapter: Chapter) -> None:
        for position, anchored in enumerate(chapter.consequences):
            finding = anchored.finding
            since = f"{finding.counts} {finding.first_step:,}: " if finding.first_step is not None else ""
            self.fact("Then" if position == 0 else "", f"{since}{finding.title} ({finding.rule})")

    def checks(self, diagnosis: Diagnosis) -> None:
        if not diagnosis.checks:
            return
        self.lines.append("")
        self.words(f"Checks: {words.tally(diagnosis)}.", "")
        commands = list(dict.fromkeys(check.command for check in story.needs_more(diagnosis) if check.command))
        for command in commands[:2]:
            count = sum(check.command == command for check in diagnosis.checks)
            self.words(f"{formatting.plural(count, 'check')} would run after:", "  ", dim=True)
            self.whole([escaping.one_line(command)], "    ", "2")

    def words(
        self, text: str, indent: str, code: str = "", bold: bool = False, dim: bool = False, hanging: str | None = None
    ) -> None:
        """Wrapped text; every paragraph of it is one."""
        style = "1" if bold else "2" if dim else ""
        for paragraph in escaping.shortened(escaping.printable(text), _LONGEST).splitlines() or [""]:
            wrapped = textwrap.wrap(
                paragraph.expandtabs(4),
                self.width,
                initial_indent=indent,
                break_on_hyphens=False,
                break_long_words=False,  # a path is to be copied whole
                subsequent_indent=indent if hanging is None else hanging,
            )
            self.lines += [self.paint(line, code, style) for line in wrapped or [indent.rstrip()]]
            indent = indent if hanging is None else hanging

    def code(self, text: str, indent: str, code: str) -> None:
        """An example as it is, without the indentation that all of its lines share."""
        if text.strip():
            lines = textwrap.dedent(escaping.printable(text)).strip("\n").expandtabs(4).splitlines()
            shown = [part for line in lines[:_CODE_LINES] for part in remarks.above(line, self.width - len(indent))]
            self.whole(shown, indent, code)

    def whole(self, lines: list[str], indent: str, code: str) -> None:
        """What is to be copied: each line in one piece, however long. The terminal breaks it."""
        for line in lines:
            text = escaping.printable(line).replace("\n", " ").expandtabs(4)
            self.lines.append(indent + self.paint(text, code, ""))

    def verbatim(self, lines: list[str], indent: str, code: str, below: str = "  ") -> None:
        """Lines as they are. One that is wider than the page goes on behind `below`; nothing of it is left out."""
        room = self.width - len(indent)
        for line in lines:
            text = escaping.printable(line).replace("\n", " ").expandtabs(4)
            while len(text) > room:
                space = text.rfind(" ", room // 2, room)
                end = room if space < 0 or not text[:space].strip() else space + 1
                self.lines.append(indent + self.paint(text[:end].rstrip(), code, ""))
                text = below + text[end:]
            self.lines.append(indent + self.paint(text, code, ""))

    def paint(self, text: str, code: str, style: str) -> str:
        codes = ";".join(part for part in (style, code) if part)
        return f"\x1b[{codes}m{text}\x1b[0m" if self.color and codes else text


def _numbers(finding: Finding) -> list[Evidence]:
    """The first few pieces of evidence that were held against something, else the first few."""
    plain = [one for one in finding.evidence if not (tracebacks.is_traceback(one) or tracebacks.is_text(one))]
    return ([one for one in plain if one.threshold is not None] or plain)[:_NUMBERS]


def _number(evidence: Evidence) -> str:
    said = f"{evidence.name}: {escaping.one_line(words.value(evidence))}"
    limit = escaping.one_line(words.limit(evidence))
    return f"{said} ({limit})" if limit else said


def _affected(finding: Finding) -> str:
    """The steps that are affected, where that says more than since when."""
    return "" if finding.last_step in (None, finding.first_step) else words.steps(finding)


def _lasted(diagnosis: Diagnosis) -> str:
    seconds = diagnosis.run.duration_s
    return "" if seconds is None else formatting.duration(seconds)
