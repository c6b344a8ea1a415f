"""Lines of the script at which a language model's loss is computed: what four rules about its rows have in common."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.rule import Limits, Skipped, Threshold

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process

NEXT = Threshold(
    "next", 0.9, "share", "targets of a language model are its next ids; by chance few in a vocabulary are"
)
NOT_SEEN = Skipped(
    "no training loss was seen whose targets are the next ids of what the model embedded", "not-applicable"
)


def lines(process: Process, limits: Limits) -> list[tuple[Line, list[Row]]]:
    """The training losses of language models, with the calls whose rows of ids were looked at, if there are enough."""
    found = []
    for line in loss_calls.lines(process, loss_calls.OF_TOKENS):
        rows = [row for row in line.rows if line.training and row["ids_next"] is not None]
        next_ids = [row for row in rows if row["ids_next"] >= limits["next"]]
        unknown = [row for row in rows if math.isnan(row["ids_next"])]
        if len(next_ids) >= max(limits["calls"], limits["share"] * (len(rows) - len(unknown))):
            found.append((line, next_ids))
    return found


def mean(rows: list[Row], name: str) -> float:
    """Mean of a column over calls."""
    return float(np.mean([row[name] for row in rows]))


def constant(rows: list[Row], name: str) -> float | None:
    """The value that a column has in all of these calls; None where it differs."""
    values = {row[name] for row in rows}
    return float(next(iter(values))) if len(values) == 1 else None


def symbols(process: Process, name: str) -> set[int]:
    """Special ids that the configurations of the called models name: `begin_symbol` or `end_symbol`."""
    return {int(row[name]) for row in process.models.records() if row.get(name) is not None}
