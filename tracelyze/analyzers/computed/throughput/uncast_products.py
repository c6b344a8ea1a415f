"""Matrix products under autocast that no layer makes: how much of their work stays in more than 16 bits."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats, Mask


class Products(NamedTuple):
    """The products behind the losses that were looked at. `share`: of their work, in more than 16 bits."""

    share: float
    losses: int
    site: float | None


def of_layers(rows: Sequence[dict[str, Any]]) -> tuple[Floats, Mask]:
    """The work of these layers, and whether each puts out more than 16 bits."""
    work = np.array([float(row["elements"]) * float(row["inputs"]) for row in rows])
    return work, np.array([row["dtype"] in ("float32", "float64") for row in rows], dtype=bool)


def behind_losses(process: Process, layers: Sequence[dict[str, Any]]) -> Products | None:
    """The products of the graphs; None where none was looked at, or where layers did more work than the graphs show.

    Those layers ran without a graph (a frozen part under no_grad, activation checkpointing): the rest says little.
    """
    rows = [row for row in process.tables["loss_graphs"].records() if row["products_work"]]
    if not rows:
        return None
    work = {str(row["module"]): float(row["elements"]) * float(row["inputs"]) for row in layers}
    if sum(work.values()) > statistics.median(row["products_work"] for row in rows):
        return None
    share = statistics.median(row["products_wide"] / row["products_work"] for row in rows)
    return Products(share, len(rows), rows[0]["site"])
