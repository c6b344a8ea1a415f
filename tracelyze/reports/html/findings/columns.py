"""A text of equal columns, as the rules write tables of ranks, as a table whose rows wrap on a phone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tracelyze.reports.markup import Markup, element

_CELL: Final = re.compile(r"\S+(?: \S+)*")
_FIT: Final = 3
"""Columns that have room beside each other on a phone."""


@dataclass(frozen=True)
class Columns:
    """The table in a text. `below`: the lines that follow it."""

    heads: list[str]
    rows: list[list[str]]
    below: list[str]


def read(text: str) -> Columns | None:
    """The table of which the first line holds the heads, at least two spaces apart; None where the text is no table."""
    first, *lines = text.strip("\n").splitlines()
    starts = [cell.start() for cell in _CELL.finditer(first)]
    rows = []
    for line in lines:
        cells = [line[begin:end] for begin, end in zip(starts, [*starts[1:], None], strict=True)]
        apart = all(cell.endswith("  ") or not rest for cell, rest in pairwise(cells))
        if not cells[0].strip() or not any(cells[1:]) or not apart:
            break
        rows.append([cell.strip() for cell in cells])
    if len(starts) < 2 or starts[0] or not rows:
        return None
    return Columns([cell.group() for cell in _CELL.finditer(first)], rows, lines[len(rows) :])


def table(columns: Columns) -> Markup:
    """The table, and below it the lines that follow."""
    head = [element("th", name, scope="col") for name in columns.heads]
    rows = [
        element(
            "tr",
            element("th", row[0], scope="row", data_label=columns.heads[0]),
            [element("td", cell, data_label=name) for name, cell in zip(columns.heads[1:], row[1:], strict=True)],
        )
        for row in columns.rows
    ]
    return element(
        "div",
        element(
            "table",
            element("thead", element("tr", head)),
            element("tbody", rows),
            class_="of-columns wraps" if len(columns.heads) > _FIT else "of-columns",
        ),
        [element("p", line) for line in columns.below],
    )
