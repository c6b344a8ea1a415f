"""Looks at a gate in which most of its experts were chosen for hardly any token, and since when that is so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

Row = dict[str, Any]


def favoured(rows: list[Row], limits: Limits) -> bool:
    """Whether most experts are idle in most of these looks, and the same ones get the tokens."""
    idle = float(np.median([row["idle"] / row["experts"] for row in rows]))
    favourites = {row["busiest"] for row in rows}  # another one in each batch: batches of one domain each
    return idle >= limits["idle"] and len(favourites) <= max(1, len(rows) // 2)


def at_last(process: Process, rows: list[Row], limits: Limits) -> list[Row]:
    """The looks since which most experts are idle, if that is half of the run or more: looks get rarer, so that half of
    them may lie in its first tenth. Empty where it is not."""
    begin = since(rows, limits)
    gone = [row for row in rows if row["step"] >= max(begin, limits["steps"])]
    last = len(process.longest.steps) if process.optimizations else 0
    looks = int(limits["looks"])
    lasts = len(gone) > looks and 2 * (last - begin) >= last
    idle = lasts and all(row["idle"] / row["experts"] >= limits["idle"] for row in gone)
    return gone if idle and len({row["busiest"] for row in gone[-looks:]}) == 1 else []


def since(rows: list[Row], limits: Limits) -> int:
    """The step of the first look since which most experts were idle in all looks; 1 if they were from the start."""
    idle = [row["idle"] / row["experts"] >= limits["idle"] for row in rows]
    first = next((index for index in range(len(rows)) if all(idle[index:])), len(rows) - 1)
    return int(rows[first]["step"]) if first else 1
