"""Whether a training went on with another kind of data: a curriculum in stages, a second phase with larger inputs."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

FEWEST = 3
"""Batches that show what was usual before."""
BEYOND = 1.25
"""Times the usual range: batches of varying length seldom leave the range of three others by more."""


def larger_from(process: Process, step: int) -> bool:
    """Whether every batch that was looked at after `step` has more elements a sample than any of those before it.

    Judged by the first field of the batches that were trained on; false where too few were looked at.
    """
    before: list[int] = []
    after: list[int] = []
    field: str | None = None
    for row in process.tables["batches"].records():
        sizes = str(row["shape"] or "").split("x")
        if row["trained"] is False or row["trained"] == 0 or not all(size.isdigit() for size in sizes):
            continue
        field = field or str(row["field"])
        if str(row["field"]) == field:
            (before if row["step"] <= step else after).append(prod(int(size) for size in sizes[1:]))
    return len(before) >= FEWEST and bool(after) and min(after) >= BEYOND * max(before)
