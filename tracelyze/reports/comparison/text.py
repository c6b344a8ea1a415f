"""The comparison as lines for a terminal: the answer first, then what moved, by cause, class, operator and kernel."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from tracelyze.reports import escaping
from tracelyze.reports.comparison import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.comparison import Change, Comparison, Section

_ROWS: Final = {"step": 8, "causes": 8, "classes": 6, "operators": 6, "kernels": 6, "recorded": 8, "loss": 4}
_SETTINGS: Final = 12
_COLORS: Final = {"critical": "31", "warning": "33", "info": "34", "ok": "32"}
_SIGNS: Final = {"critical": "✖", "warning": "▲", "info": "●", "ok": "✔"}
_NUMBERS: Final = (11, 11, 12, 12)
_MEANING: Final = 14  # columns for "within noise"


def render(comparison: Comparison, color: bool = False, width: int = 88) -> str:
    """The summary. Whatever strings the two hold, the only escape sequences are the colours asked for by `color`."""
    lines = _wrapped(f"{_SIGNS[words.severity(comparison)]} {comparison.headline}", width, "", "  ")
    if color:
        lines = [f"\x1b[1;{_COLORS[words.severity(comparison)]}m{line}\x1b[0m" for line in lines]
    lines += _wrapped(comparison.lead, width, "  ", "  ") if comparison.lead else []
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        lines += _wrapped(f"{letter}: {side.path} ({words.side(side)})", width, "  ", "     ")
    for note in comparison.notes[:4]:
        lines += _wrapped(f"Note: {note}", width, "  ", "        ")
    for section in comparison.sections:
        lines += _table(section, width)
    lines += _findings(comparison, width) + _settings(comparison, width)
    if words.has_noise(comparison):
        lines += ["", *_wrapped(words.NOISE, width, "", "")]
    return "\n".join(lines) + "\n"


def _table(section: Section, width: int) -> list[str]:
    shown = section.changes[: _ROWS.get(section.id, 6)]
    if section.id not in ("step", "recorded", "loss"):
        shown = [change for change in shown if words.meaning(change) != "too small to matter"] or shown[:1]
    room = max(20, width - sum(_NUMBERS) - _MEANING)
    head = _row(section.title, ("A", "B", "B - A", ""), "", room)
    lines = ["", head, *[_change(change, room) for change in shown]]
    rest = len(section.changes) - len(shown)
    return [*lines, f"  and {rest} more that matter less"] if rest > 0 else lines


def _change(change: Change, room: int) -> str:
    numbers = (
        words.value(change, change.before),
        words.value(change, change.after),
        words.difference(change),
        words.relative(change),
    )
    return _row(f"  {change.name}", numbers, words.meaning(change), room)


def _row(name: str, numbers: Sequence[str], meaning: str, room: int) -> str:
    said = escaping.one_line(name)
    indent = name[: len(name) - len(name.lstrip())]
    said = indent + said
    cells = "".join(f" {escaping.one_line(cell):>{size - 1}}" for cell, size in zip(numbers, _NUMBERS, strict=True))
    if len(said) <= room:
        return f"{said:<{room}}{cells}  {meaning}".rstrip()
    width = room + sum(_NUMBERS) + _MEANING  # a name that finds no room stands on a line of its own
    own_line = said if len(said) <= width else said[: width - 1] + "…"
    return f"{own_line}\n{'':<{room}}{cells}  {meaning}".rstrip()


def _findings(comparison: Comparison, width: int) -> list[str]:
    if not comparison.findings:
        return []
    lines = ["", "Findings"]
    for change in comparison.findings:
        cost, verb = words.finding(change).removeprefix("was "), "cost" if change.fate == "fixed" else "costs"
        text = (
            f"{words.FATE[change.fate]}: {change.title} ({change.rule}{f', {verb} {cost} of the time' if cost else ''})"
        )
        lines += _wrapped(text, width, "  ", "    ")
    return lines


def _settings(comparison: Comparison, width: int) -> list[str]:
    if not comparison.settings:
        return []
    lines = ["", "Settings that differ"]
    for change in comparison.settings[:_SETTINGS]:
        lines += _wrapped(f"{change.name}: {change.before} → {change.after}", width, "  ", "    ")
    rest = len(comparison.settings) - _SETTINGS
    return [*lines, f"  and {rest} more"] if rest > 0 else lines


def _wrapped(text: str, width: int, indent: str, hanging: str) -> list[str]:
    said = escaping.shortened(escaping.one_line(text), 600)
    return textwrap.wrap(said, width, initial_indent=indent, subsequent_indent=hanging, break_on_hyphens=False)
