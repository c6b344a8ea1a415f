"""The user's line with the lines around it, and next to it the fix: a diff only where the rule knows the edit."""

from __future__ import annotations

import textwrap
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from tracelyze.reports import escaping
from tracelyze.reports.markup import Child, Markup, element, with_code
from tracelyze.reports.wording import remarks, words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracelyze.diagnosis import Diff, Excerpt, Finding, Location, RunFacts
    from tracelyze.reports.wording.story import Anchored

LONGEST: Final = 4000  # characters of one text of a run; the rest is in the diagnosis as data
MINUS: Final = "\u2212"
"""The sign of a removed line, as wide as a plus."""

_AROUND: Final = 2  # lines of the user's code on each side of an edit


def pair(anchored: Anchored, run: RunFacts) -> Child:
    """Both cards side by side, or the one that is known."""
    cards = [card for card in (_seen(anchored.finding, run), _fix(anchored)) if card is not None]
    return element("div", cards, class_="pair") if cards else None


def paragraphs(text: str) -> Child:
    """Plain words, a paragraph for every blank line, line breaks kept."""
    parts = escaping.shortened(escaping.printable(text), LONGEST).strip().split("\n\n")
    return [element("p", with_code(part), class_="words") for part in parts if part.strip()]


def _seen(finding: Finding, run: RunFacts) -> Markup | None:
    where = finding.location
    if where is None:
        return None
    name = PurePath(where.file).name or where.file
    rank = f", rank {finding.ranks[0]}" if run.ranks > 1 and len(finding.ranks) == 1 else ""
    called = "" if where.function.rpartition(".")[2][:1].isupper() else "()"  # a class's own lines are not called
    inside = f" in {where.function}{called}" if words.in_function(where) else ""
    folder = str(PurePath(where.file).parent)
    note = ", ".join(
        part for part in (f"{folder}/{inside}" if folder != "." else inside.strip(), rank.strip(", ")) if part
    )
    return element(
        "div",
        element(
            "header",
            element("h2", f"{words.place_heading(finding)} {escaping.one_line(name)}:{where.line}"),
            element("code", escaping.shortened(escaping.one_line(note), 120)) if note else None,
        ),
        _excerpt(where, finding.excerpt) or paragraphs("The text of this line was not recorded."),
        _seen_elsewhere(finding.seen_at),
        class_=f"card code seen {finding.severity}",
    )


def _seen_elsewhere(where: Location | None) -> Child:
    """The line where the harm was seen, below the one to change."""
    if where is None:
        return None
    place = f"Seen at {escaping.shortened(escaping.one_line(words.place(where)), 120)}"
    source = where.source.strip()
    text = element("code", escaping.shortened(escaping.one_line(source), 120)) if source else None
    return element("p", f"{place}: " if text else place, text, class_="words")


def _excerpt(where: Location, excerpt: Excerpt | None) -> Child:
    if excerpt is None or not excerpt.lines:
        if not where.source.strip():
            return None
        return _block([("mark", str(where.line), "", where.source.strip())], "")
    lines = _dedented(excerpt.lines)
    while lines and not lines[-1].strip():
        lines.pop()
    numbered = [
        ("mark" if excerpt.first_line + index == where.line else "span", str(excerpt.first_line + index), "", line)
        for index, line in enumerate(lines)
    ]
    return _block(numbered, "")


def _fix(anchored: Anchored) -> Markup | None:
    finding = anchored.finding
    diff, example = finding.diff, finding.fix_code.strip("\n")
    if diff is None and not example.strip() and not finding.fix.strip():
        return None
    code: Child = None
    copied = ""
    if diff is not None:
        code, copied = _edit(diff, finding.excerpt, finding.location), "\n".join(diff.added)
    elif example.strip():
        copied = textwrap.dedent(escaping.printable(example))
        code = _block([("span", "", "", line) for line in escaping.shortened(copied, LONGEST).split("\n")], "plain")
    heading = "Fix" if diff is not None else "Example fix" if example.strip() else "What to do"
    place = f"{PurePath(diff.file).name}, line {diff.line}" if diff is not None else ""
    ident = f"fix-{anchored.anchor}"
    return element(
        "div",
        element(
            "header",
            element("h2", heading),
            element("code", escaping.one_line(place)) if place else None,
            element("button", "Copy", type="button", data_copy=ident, aria_label="Copy the fix", hidden=True)
            if copied.strip()
            else None,
        ),
        paragraphs(finding.fix),
        code,
        element("footer", element("b", "To verify: "), with_code(_sentence(finding.verify)))
        if finding.verify.strip()
        else None,
        element("pre", escaping.printable(copied), id=ident, hidden=True) if copied.strip() else None,
        class_="card code fix",
    )


def _edit(diff: Diff, excerpt: Excerpt | None, where: Location | None) -> Markup:
    """The edit as a diff, with the lines around it where they are known."""
    before, after = _context(diff, excerpt if where is not None and where.file == diff.file else None)
    start = diff.line - len(before)
    rows = [("span", str(start + index), " ", line) for index, line in enumerate(before)]
    rows += [("del", str(diff.line + index), MINUS, line) for index, line in enumerate(diff.removed)]
    rows += [("ins", str(diff.line + index), "+", line) for index, line in enumerate(diff.added)]
    following = diff.line + len(diff.added)
    rows += [("span", str(following + index), " ", line) for index, line in enumerate(after)]
    dedented = _dedented([row[3] for row in rows])
    return _block(
        [(tag, number, sign, line) for (tag, number, sign, _), line in zip(rows, dedented, strict=True)],
        "marked",
    )


def _context(diff: Diff, excerpt: Excerpt | None) -> tuple[list[str], list[str]]:
    if excerpt is None:
        return [], []
    known = {excerpt.first_line + index: line for index, line in enumerate(excerpt.lines)}
    end = diff.line + len(diff.removed)
    before = [known[number] for number in range(diff.line - _AROUND, diff.line) if number in known]
    if diff.line - 1 not in known:
        before = []
    after: list[str] = []
    while end + len(after) in known and len(after) < _AROUND:
        after.append(known[end + len(after)])
    while after and not after[-1].strip():
        after.pop()
    return before, after


def _block(rows: Iterable[tuple[str, str, str, str]], kind: str) -> Markup:
    """Lines of code: element, number, sign of a diff, text. Each keeps its indentation when it is wrapped."""
    shown = []
    for tag, number, sign, line in rows:
        text = escaping.shortened(escaping.printable(line).replace("\n", " "), LONGEST)
        indent = len(text) - len(text.lstrip(" ")) + (2 if sign else 0)
        shown.append(
            element(
                tag,
                element("i", sign) if sign else None,
                _with_remark(text) if kind == "plain" else text or " ",
                data_n=number or None,
                style=f"--indent:{indent + 2}ch",
            )
        )
    return element("pre", shown, class_=f"lines {kind}".strip())


def _with_remark(text: str) -> Child:
    """A line of an example whose comment stays together: what is wrapped of it never looks like code."""
    code, remark = remarks.split(text)
    return [code, element("span", remark, class_="remark")] if remark else text or " "


def _dedented(lines: list[str]) -> list[str]:
    text = textwrap.dedent("\n".join(escaping.printable(line).replace("\n", " ").expandtabs(4) for line in lines))
    return text.split("\n")


def _sentence(text: str) -> str:
    line = escaping.shortened(escaping.one_line(text), LONGEST)
    return line if line.endswith((".", "!", "?")) else f"{line}."
