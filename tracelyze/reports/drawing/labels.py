"""The words over a chart: where the labels of its marks stand, and how long they may be on a phone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.reports import escaping
from tracelyze.reports.markup import Child, element

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.diagnosis import Mark
    from tracelyze.reports.drawing.axes import Axis

ROW: Final = 18  # px for one row of labels above the plot
CHARACTER: Final = 6.4  # px, of a label on average
NARROW: Final = 300  # px: the plot on a phone, for which labels are laid out
_ROWS: Final = 3
_LONGEST_LABEL: Final = 44  # characters


@dataclass(frozen=True)
class Placed:
    """A mark in the drawing: where it stands, what of its label is shown, and in which row above the plot."""

    fraction: float
    label: str
    row: int | None
    full: Mark

    @property
    def leftwards(self) -> bool:
        """Labels run towards the side that has more room."""
        return self.fraction > 0.5


def place(marks: Sequence[Mark], x: Axis) -> list[Placed]:
    """The marks that can be drawn, each with the first row in which its label touches no other; else with none."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(_ROWS)]
    placed: list[Placed] = []
    for mark in marks:
        fraction = x.fraction(mark.x)
        if fraction is None:
            continue
        label = cut(mark.label, int(max(fraction, 1 - fraction) * NARROW / CHARACTER))
        width = len(label) * CHARACTER + 10
        left = fraction * NARROW - (width if fraction > 0.5 else 0)
        free = (row for row, spans in enumerate(taken) if all(left + width < low or left > high for low, high in spans))
        row = next(free, None) if label else None
        if row is not None:
            taken[row].append((left, left + width))
        placed.append(Placed(fraction, label, row, mark))
    return placed


def rows(placed: Sequence[Placed]) -> int:
    """How many rows of labels stand above the plot."""
    return max((one.row + 1 for one in placed if one.row is not None), default=0)


def of_marks(placed: Sequence[Placed], head: int, onset: bool) -> Child:
    """The lines of the marks with their labels; `head`: pixels above the plot that the labels take."""
    drawn: list[Child] = []
    for index, one in enumerate(placed):
        kind = " onset" if onset and index == 0 else ""
        top = 0 if one.row is None else one.row * ROW - head
        left = f"left:{percent(one.fraction)}"
        drawn.append(element("i", class_=f"mark-line{kind}", style=f"{left};top:{top}px"))
        if one.row is not None:
            side = " end" if one.leftwards else ""
            drawn.append(element("span", one.label, class_=f"chart-label{kind}{side}", style=f"{left};top:{top}px"))
    return drawn


def position(x_label: str) -> str:
    """What the x axis counts, in a word: `step` of `step (of both ranks)`."""
    return escaping.one_line(x_label).partition(" (")[0] or "position"


def cut(label: str, room: int = _LONGEST_LABEL) -> str:
    """The label on one line, cut to the room that a phone has for it."""
    line = escaping.one_line(label)
    longest = min(room, _LONGEST_LABEL)
    return line if len(line) <= longest else line[: max(0, longest - 1)] + "…"


def percent(fraction: float | None) -> str:
    """A position for the style sheet: `12.5%`."""
    return f"{short((fraction or 0.0) * 100, 2)}%"


def short(value: float, digits: int = 1) -> str:
    """A number without zeros at its end."""
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")
