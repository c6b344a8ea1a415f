"""Matrix products under autocast that no layer makes: how much of their work stays in more than 16 bits."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats, Mask


class Products(NamedTuple):
    """The products behind the losses that were looked at. `share`: of their work, in more than 16 bits."""

    share: float
    losses: int
    site: float | None


def of_steps(process: Process, rows: Iterable[dict[str, Any]], own: Mask | None = None) -> list[dict[str, Any]]:
    """The rows that were taken in these steps of the longest training, a mask of shape [steps], or in any of its steps.
    Another training of the process, of a teacher say, may have layers of the same names, and other regions."""
    if len(process.optimizations) < 2:
        return list(rows)
    times = process.longest.steps["time"]
    inside = np.isin(process.steps["time"], times if own is None else times[own])
    return [row for row in rows if 0 <= row["step"] < len(inside) and inside[int(row["step"])]]


def looked_at(process: Process, own: Mask) -> list[dict[str, Any]]:
    """What was measured at layers with products in these steps of the longest training."""
    rows = of_steps(process, process.tables["activations"].records(), own)
    return [row for row in rows if row["inputs"] and row["outputs"]]


def of_layers(rows: Sequence[dict[str, Any]]) -> tuple[Floats, Mask]:
    """The work of these layers, and whether each puts out more than 16 bits."""
    work = np.array([float(row["elements"]) * float(row["inputs"]) for row in rows])
    return work, np.array([row["dtype"] in ("float32", "float64") for row in rows], dtype=bool)


def behind_losses(process: Process, own: Mask, layers: Sequence[dict[str, Any]]) -> Products | None:
    """The products of the graphs of these steps of the longest training; None where none was looked at, or where layers
    did more work than the graphs show.

    Those layers ran without a graph (a frozen part under no_grad, activation checkpointing): the rest says little.
    """
    rows = of_steps(process, process.tables["loss_graphs"].records(), own)
    rows = [row for row in rows if row["products_work"]]
    if not rows:
        return None
    work = {str(row["module"]): float(row["elements"]) * float(row["inputs"]) for row in layers}
    if sum(work.values()) > statistics.median(row["products_work"] for row in rows):
        return None
    share = statistics.median(row["products_wide"] / row["products_work"] for row in rows)
    return Products(share, len(rows), rows[0]["site"])
