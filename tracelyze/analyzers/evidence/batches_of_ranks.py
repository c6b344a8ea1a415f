"""The first batches of each rank side by side: the same fingerprint in a row is the same batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_ROWS: Final = 8
MOST_RANKS: Final = 6


def text(batches: Mapping[int, Mapping[int, str]]) -> str:
    """A line for each of the first places at which all ranks were looked at; `batches`: by rank, then by place."""
    ranks = sorted(batches)[:MOST_RANKS]
    common = sorted(set.intersection(*(set(batches[rank]) for rank in ranks))) if ranks else []
    rows = [
        ("batch", *(f"rank {rank}" for rank in ranks)),
        *((str(at + 1), *(batches[rank][at] for rank in ranks)) for at in common[:MOST_ROWS]),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    left_out = len(batches) - len(ranks)
    return "\n".join([*lines, *([f"and {left_out:,} more ranks"] if left_out else [])])
