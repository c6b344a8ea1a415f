"""Lines of the script at which a language model's loss is computed: what four rules about its rows have in common."""

from __future__ import annotations

import math
from dataclasses import replace
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
    """The training losses of language models, with the calls whose rows of ids were looked at, if there are enough.

    Calls whose ids were not compared are no part of the line: nobody knows what those are like.
    """
    found = []
    for line in loss_calls.lines(process, loss_calls.OF_TOKENS):
        rows = [row for row in line.rows if line.training and row["ids_next"] is not None]
        next_ids = [row for row in rows if row["ids_next"] >= limits["next"]]
        compared = [row for row in rows if not math.isnan(row["ids_next"])]
        if len(next_ids) >= max(limits["calls"], limits["share"] * len(compared)):
            found.append((replace(line, rows=compared), next_ids))
    return found


def mask_numbers(process: Process, rows: list[Row]) -> int | None:
    """The largest number in the attention masks of the training's batches, where these number the samples of a row, as
    many as a row has answers; None where masks only hide padding, or none were seen."""
    masks = [row for row in process.tables["batches"].records() if row["trained"] and row["field"] == "attention_mask"]
    if not masks or any(not str(row["dtype"]).startswith("int") or row["min"] not in (0, 1) for row in masks):
        return None
    highest = max(row["max"] for row in masks)
    told = [row["answers"] for row in rows if row.get("answers") is not None]
    return int(highest) if highest >= 2 and told and 2 <= sum(told) / len(told) <= highest else None


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
