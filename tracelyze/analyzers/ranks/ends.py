"""How the ranks of a job ended, and which of them ended first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tracelyze.analyzers.recorded import deaths
from tracelyze.analyzers.recorded.run import Death
from tracelyze.diagnosis import Agreement
from tracelyze.formatting import capitalized, duration, plural, shortened

MOST_SHOWN: Final = 6  # ranks whose end is described
LONGEST: Final = 100  # characters of what ended one


def of(died: Sequence[Death]) -> list[Agreement]:
    """One row, where at least two ranks of one job died: the first, and how much later the others followed."""
    ranks: dict[int, Death] = {}
    for one in deaths.in_order(died):
        if one.job is not None:
            ranks.setdefault(one.rank, one)
    if len(ranks) < 2:
        return []
    first, *others = ranks.values()
    ends = [f"rank {first.rank} was the first, after {plural(first.steps, 'step')}: {_what(first)}"]
    ends += [f"rank {one.rank}{_later(one, first)}: {_what(one)}" for one in others[: MOST_SHOWN - 1]]
    more = len(others) - (MOST_SHOWN - 1)
    said = "; ".join([*ends, *([f"{plural(more, 'more rank')} after them"] if more > 0 else [])])
    rule = "crash" if first.exit.kind == "exception" else "killed"
    return [
        Agreement(
            "How they ended",
            "odd",
            f"{capitalized(said)}{'' if said.endswith('…') else '.'}",
            [first.rank],
            first.steps,
            rule,
        )
    ]


def _what(one: Death) -> str:
    return shortened(one.what, LONGEST).rstrip(".")


def _later(one: Death, first: Death) -> str:
    seconds = one.at - first.at
    return f", {duration(seconds)} later" if math.isfinite(seconds) and seconds > 0 else ""
