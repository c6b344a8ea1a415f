"""The ranks of one job side by side: in what they agree, who is different, since when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.reports.markup import Child, element
from tracelyze.reports.wording import rank_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.diagnosis import Agreement, Diagnosis

_HEADS: Final = ("What", "State", "Who is different", "Since step", "What was seen")
_ABOUT: Final = (
    "Data-parallel ranks apply the same gradients to the same weights, and share the data evenly. What is compared is "
    "what was recorded at the same steps on all of them."
)


def section(diagnosis: Diagnosis) -> Child:
    """A table with a row for each thing that ranks should have in common; None for a run of one rank."""
    if not diagnosis.ranks:
        return None
    order = {"odd": 0, "own": 1, "agree": 2}
    # Where all agree, nobody is different since any step.
    heads = _HEADS if any(one.ranks or one.since is not None for one in diagnosis.ranks) else (*_HEADS[:2], _HEADS[-1])
    rows = [_row(one, heads) for one in sorted(diagnosis.ranks, key=lambda one: order[one.state])]
    return element(
        "section",
        element("h2", "Ranks that should agree"),
        element("p", _ABOUT, class_="quiet"),
        element(
            "div",
            element(
                "table",
                element("thead", element("tr", [element("th", head, scope="col") for head in heads])),
                element("tbody", rows),
                class_="stacked agreement",
            ),
            class_="card",
        ),
        id="ranks",
    )


def _row(one: Agreement, heads: Sequence[str]) -> Child:
    cells: dict[str, Child] = {
        "State": rank_words.STATES[one.state],
        "Who is different": rank_words.who(one),
        "Since step": f"{one.since:,}" if one.since is not None else "",
        "What was seen": [
            rank_words.said(one),
            element("span", f" ({one.rule})", class_="quiet") if one.rule else None,
        ],
    }
    name = element("strong", one.name) if one.state == "odd" else one.name
    return element(
        "tr",
        element("th", name, scope="row"),
        [element("td", cells[head], data_label=head) for head in heads[1:]],
    )
