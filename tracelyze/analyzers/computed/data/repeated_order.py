"""Loops without a loader that go through the same batches in the same order, pass after pass, though they shuffle."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location

Order = dict[str, Any]
FIX_CODE: Final = """generator = torch.Generator().manual_seed(seed)  # once
for epoch in range(epochs):
    order = torch.randperm(len(x), generator=generator)
    for rows in order.split(batch_size):
        loss = criterion(model(x[rows]), y[rows])"""
_DRAWN: Final = re.compile(r"\b(?:randperm|permutation)\s*\(")


def of(process: Process) -> Order | None:
    """What was seen of the order of inputs that no loader made; None where a loader made all."""
    rows = process.events_of("input-order")
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
    """The finding. A line that seeds or draws for each pass shows that a new order was meant; one that was drawn once
    may be that of a split."""
    optimization = process.longest if process.optimizations else None
    lines = shuffles(process)
    seeds = script_lines.reseeded_by_hand(process)
    each = [one for one in lines if _for_each_pass(process, one)]
    perhaps = next((one for one in each if _under_a_condition(process, one)), None)
    each = [] if perhaps is not None else each
    drawn = each[0] if len(each) == 1 else None  # another one may be of something else, as a partner for mixing
    count = int(order["passes"])
    why, fix, code = _told(seeds, drawn, once=all(_before_the_loop(process, one) for one in lines))
    if seeds is None and perhaps is not None:
        why = f"Line {perhaps.line} draws an order under a condition, which may not have held."
    return Finding(
        rule=rule,
        severity="info" if seeds is None and drawn is None else "warning",
        confidence="certain",
        title=f"Each of {plural(count, 'epoch')} trains on the same batches in the same order",
        summary=(
            f"The inputs of the model repeat every {plural(int(order['period']), 'step')}: in {plural(count, 'pass')} "
            f"over the data each batch held what it held before. {why} The network sees the same batches again and "
            "again: their noise does not average out, and the same batches always end an epoch."
        ),
        fix=fix,
        fix_code=code,
        first_step=int(order["period"]) + 1,
        evidence=[
            Evidence("passes with the same order", count, "passes", *limits.against("passes")),
            Evidence("different batches in a pass", order["distinct"], "batches", *limits.against("batches")),
        ],
        location=seeds or drawn or perhaps or min(lines, key=lambda one: one.line),
        seen_at=script_lines.batches(process),
        charts=pictures.loss(optimization) if optimization else [],
        false_alarm="An order that is to repeat, as for a comparison batch by batch.",
    )  # fmt: skip


def _told(seeds: Location | None, drawn: Location | None, *, once: bool) -> tuple[str, str, str]:
    """Why the order repeats, as far as the script's lines show it, what to change, and an example."""
    fix = "Draw a new order for each epoch from a generator that is seeded once."
    if seeds is not None and script_lines.makes_generator(seeds):
        why = (
            f"Line {seeds.line} re-creates the generator for each epoch with the same seed, so it draws the same order."
        )
        fix = (
            f"Create the generator of line {seeds.line} once, above the epoch loop, and pass it to whatever draws the "
            "order. Or make the seed depend on the epoch."
        )
        return why, fix, f"{seeds.source.strip()}  # once, above the loop over epochs; hand it over as an argument"
    if seeds is not None:
        return "The generator is re-seeded for each epoch and draws the same order again.", fix, FIX_CODE
    if drawn is not None:
        why = (
            f"Line {drawn.line} draws an order for each epoch and gets the same one again: its generator is re-seeded "
            "or re-created each time."
        )
        return why, "Seed the generator of this line once, above the loop over epochs.", FIX_CODE
    if once:
        return "The order is drawn once, and is that of every epoch.", fix, FIX_CODE
    return "Either it is drawn once, or its generator is re-seeded for each epoch.", fix, FIX_CODE


def _under_a_condition(process: Process, line: Location) -> bool:
    """Whether the line draws an order in one of two cases only: within its statement, or below an `if`."""
    if re.search(r"\bif\b.+\belse\b", line.source):
        return True
    text = recorded_text.around(process, line)
    depth = _depth(text.get(line.line, ""))
    above = [text[number] for number in sorted(text) if number < line.line and _depth(text[number]) < depth]
    return bool(above) and re.match(r"\s*(?:if|elif|else)\b", above[-1]) is not None


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else len(line) + 10**6  # an empty line ends no block


def _for_each_pass(process: Process, line: Location) -> bool:
    """Whether the line is reached for each pass: in the generator of the batches, or in the loop over epochs."""
    makers = process.functions("batches")
    return line.file_function in makers or (_beside_the_loop(process, line) and not _before_the_loop(process, line))


def _beside_the_loop(process: Process, line: Location) -> bool:
    """Whether the line is of the function of the loop over epochs, and stands above its backward."""
    ends = [one for one in process.locations("backward") if one.file_function == line.file_function]
    return bool(process.locations("epochs")) and any(line.line < one.line for one in ends)


def _before_the_loop(process: Process, line: Location) -> bool:
    """Whether the line is reached once: above the loop over epochs, in its function; or in the file, outside of all."""
    homes = [one for one in process.locations("epochs") if one.file_function == line.file_function]
    return any(line.line < one.line for one in homes) or (line.function == script_lines.MODULE and not homes)
