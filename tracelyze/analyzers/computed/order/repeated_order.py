"""Loops without a loader that go through the same batches in the same order, pass after pass, though they shuffle."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.evidence import pictures, script_lines
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location

Order = dict[str, Any]
_DRAWN: Final = re.compile(r"\b(?:randperm|permutation)\s*\(")


def of(process: Process) -> Order | None:
    """What was seen of the order of inputs that no loader made; None where a loader made all."""
    rows = [row for row in process.events.records() if row["kind"] == "input-order"]
    found: Order | None = json.loads(rows[-1]["text"]) if rows else None
    return found


def shuffles(process: Process) -> list[Location]:
    """Lines of the script that draw an order."""
    drawn = [one for one in process.locations("split") if _DRAWN.search(one.source)]
    return [*process.locations("shuffle"), *drawn]


def repeats(order: Order, limits: Limits) -> bool:
    """Whether the passes over the data were alike, of batches that differ, and drawn out of their order in memory."""
    several = order["distinct"] >= limits["batches"] and order["passes"] >= limits["passes"]
    return bool(several and order["adjoining"] <= limits["adjoining"])


def finding(process: Process, rule: str, order: Order, limits: Limits) -> Finding:
    """The finding. A line that seeds anew for each pass shows that a new order was meant; one that was drawn once may
    be that of a split."""
    optimization = process.longest if process.optimizations else None
    lines = shuffles(process)
    seeds = script_lines.reseeded_by_hand(process)
    count = int(order["passes"])
    why = (
        "The generator is seeded anew for each of them, and draws the same order again."
        if seeds is not None
        else "The order is drawn once, and is that of every epoch."
    )
    return Finding(
        rule=rule,
        severity="info" if seeds is None else "warning",
        confidence="certain",
        title=f"Each of {plural(count, 'epoch')} trains on the same batches in the same order",
        summary=(
            f"The inputs of the model repeat every {plural(int(order['period']), 'step')}: in {plural(count, 'pass')} "
            f"over the data each batch held what it held before. {why} The network sees the same batches again and "
            "again: their noise does not average out, and the last ones of an epoch always have the last word."
        ),
        fix="Draw a new order for each epoch, from a generator that is seeded once.",
        fix_code="generator = torch.Generator().manual_seed(seed)  # once\nfor epoch in range(epochs):\n"
        "    order = torch.randperm(len(x), generator=generator)\n    for rows in order.split(batch_size):\n"
        "        loss = criterion(model(x[rows]), y[rows])",
        first_step=int(order["period"]) + 1,
        evidence=[
            Evidence("passes with the same order", count, "passes", limits["passes"], limits.source("passes")),
            Evidence("different batches in a pass", order["distinct"], "batches", limits["batches"],
                     limits.source("batches")),
        ],
        location=seeds or min(lines, key=lambda one: one.line),
        seen_at=script_lines.batches(process),
        charts=pictures.loss(optimization) if optimization else [],
        false_alarm="An order that is to repeat, as for a comparison batch by batch.",
    )  # fmt: skip
