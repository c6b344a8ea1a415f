"""Tables of what took time: short names in the rows, the full ones behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze import formatting
from tracelyze.reports import escaping
from tracelyze.reports.markup import Child, Markup, element

if TYPE_CHECKING:
    from tracelyze.diagnosis import Listing

_LONGEST = 1000  # characters of a full name


def section(listings: list[Listing]) -> Child:
    """All tables of a picture; None where there is none."""
    if not listings:
        return None
    return element("section", element("h2", "What took the time"), [table(one) for one in listings], id="time")


def table(listing: Listing) -> Markup:
    """One table with its title and what it leaves out. Columns of words stand as small lines under the name."""
    words_of, numbers = _split(listing)
    heads = [f"{name}, {unit}" if unit and unit != "share" else name for name, unit in numbers]
    described = " · ".join(name for name, _ in words_of)
    first = [listing.columns[0][0], element("span", described, class_="described") if described else None]
    rows = [_row(listing, row, full, heads) for row, full in zip(listing.rows, listing.full, strict=False)]
    return element(
        "div",
        element("h3", listing.title),
        element("p", listing.about, class_="quiet"),
        element(
            "table",
            element(
                "thead",
                element(
                    "tr",
                    element("th", first, scope="col"),
                    [element("th", head, scope="col", class_="number") for head in heads],
                ),
            ),
            element("tbody", rows),
            class_="stacked listing",
        ),
        element("p", listing.rest, class_="quiet") if listing.rest else None,
        class_="card",
    )


def _split(listing: Listing) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The columns of words, without the first, and the columns of numbers."""
    further = listing.columns[1:]
    return [one for one in further if one[1] == "text"], [one for one in further if one[1] != "text"]


def _row(listing: Listing, row: list[float | int | str | None], full: str, heads: list[str]) -> Markup:
    cells = list(zip(row[1:], listing.columns[1:], strict=False))
    described = [escaping.one_line(str(value)) for value, (_, unit) in cells if unit == "text" and value]
    numbers = [_number(value, unit) for value, (_, unit) in cells if unit != "text"]
    return element(
        "tr",
        element(
            "th",
            _name(escaping.one_line(str(row[0])), full),
            element("span", " · ".join(described), class_="described") if described else None,
            scope="row",
        ),
        [element("td", said, class_="number", data_label=head) for said, head in zip(numbers, heads, strict=True)],
    )


def _name(short: str, full: str) -> Child:
    if not full or full == short:
        return element("code", short)
    return element(
        "details",
        element("summary", element("code", short)),
        element("code", escaping.shortened(escaping.one_line(full), _LONGEST)),
        class_="full",
    )


def _number(value: float | int | str | None, unit: str) -> str:
    if not isinstance(value, float | int):
        return "" if value is None else escaping.one_line(value)
    if unit == "share":
        return formatting.percent(value)
    return formatting.number(float(f"{value:.3g}") if isinstance(value, float) else value)
