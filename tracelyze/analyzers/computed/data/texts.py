"""Lines of the script at which a language model's loss is computed: what four rules about its rows have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.rule import Limits, Skipped, Threshold
from tracelyze.formatting import plural

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


@dataclass(frozen=True)
class End:
    """The id in which rows end. `known`: the model's configuration says that it ends a text. `stop`: the last target
    that counts, where that is one id in most rows; `word`: it stands elsewhere, too, as a full stop does. `padding`:
    the id that fills rows up behind it, where that is another one."""

    symbol: int
    known: bool
    share: float  # of the rows
    stop: int | None
    word: bool
    padding: int | None = None


def end(rows: list[Row], limits: Limits, known: set[int], by_template: bool = False) -> End | str:
    """The end that is never a target, or why the model can learn where a text ends, or why that is not known. Answers
    of one length need none, unless a template says what is a target: it marks turns, whatever their length."""
    looked = plural(len(rows), "batch")
    recorded = all(row["behind_id"] is not None for row in rows)  # older recordings do not have it
    last, behind = constant(rows, "end_id"), constant(rows, "behind_id") if recorded else None
    share = mean(rows, "end_rows")
    apart = behind is not None and behind >= 0 and behind != last and mean(rows, "behind_rows") >= limits["ended"]
    padding = None
    if apart and behind is not None:  # padding has an id of its own, or fills no row
        padding = int(last) if last is not None and share >= limits["stopped"] else None
        last, share, counted = behind, mean(rows, "behind_rows"), "behind_counts"
    elif last is not None and share >= limits["ended"]:
        counted = "end_counts"
    else:
        return f"in {looked} that were looked at, rows do not end in one id"
    if any(row[counted] for row in rows):
        return f"id {last:.0f}, in which rows end, is a target that counts in {looked}"
    same = [row for row in rows if row["stop_same"] >= limits["stopped"] and row["stop_id"] == rows[0]["stop_id"]]
    stop = int(rows[0]["stop_id"]) if len(same) == len(rows) else None
    inside = sum(row["stop_inside"] for row in rows) if recorded else 0.0
    after = float(np.average([row["stop_after"] for row in rows if row["stop_inside"]])) if inside else np.nan
    word = inside >= limits["inside"] and after < limits["after"]
    least = sorted(row["end_least"] for row in rows)[len(rows) // 2]
    written = apart or least == 1  # the longest row ends in it, too, so that it is no padding there
    # Padding that fills all rows to one length looks like an end that is masked; beside an end symbol it is none.
    padded = int(last) not in known and mean(rows, "stop_same") >= limits["ended"]
    # Once at the end of the longest row of every batch, it was written: whatever stands before it does not end a text.
    named = int(last) in known and all(row["end_least"] == 1 for row in rows)
    taught = not word and (inside or padded or not written or not recorded)
    if stop is not None and (stop in known or (taught and not named)):
        return f"the last target that counts is id {stop} in most rows of {looked}"
    alike = len({row[name] for row in rows for name in ("targets_least", "targets_most")}) == 1
    if alike and not (by_template and int(last) in known):
        return "all rows have the same number of targets that count: where to stop is not to be learned"
    if int(last) not in known and not written:
        return f"rows end in id {last:.0f}, which may be nothing but padding: nothing shows that it ends a text"
    if stop is None and int(last) not in known and recorded and not inside and _ends_alone(rows, limits):
        return "the commonest last targets stand nowhere else in the rows: they may be what ends a text"
    return End(int(last), int(last) in known, share, stop, word or inside > 0, padding)


def _ends_alone(rows: list[Row], limits: Limits) -> bool:
    """Whether one id is the commonest last target of most batches, as one of several ends: final states, say."""
    common = max({row["stop_id"] for row in rows}, key=lambda one: sum(row["stop_id"] == one for row in rows))
    same = [row for row in rows if row["stop_id"] == common]
    return len(same) >= limits["stopped"] * len(rows) and mean(same, "stop_same") >= limits["several"]
