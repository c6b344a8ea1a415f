"""Epochs that were made against those that the loop over them is written for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.computed.schedules.planned import counted_batches, shared_generators
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location

KIND = "epochs-planned"
BATCHES = "batches-planned"


def finding(process: Process, rule: str, limits: Limits) -> Finding | None:
    """A loop that was left when its first epoch was whole, or while validation became better with each epoch, or where
    nothing sets back what counts the epochs without progress."""
    planned = [row["value"] for row in process.events_of(KIND)]
    if len(planned) != 1 or len(process.optimizations) != 1 or planned[0] < limits["epochs"]:
        return None
    optimization = process.optimizations[0]
    length = _length(process)
    mistaken = counted_batches.finding(optimization, rule, int(planned[0]), length, limits) if length else None
    meant = worse_at_the_end(process) and not counted_batches.counts_each(optimization)
    if mistaken is not None and not meant and not process.locations("waits"):
        return mistaken
    done = _whole_passes(process, optimization) or _whole_epoch(optimization)
    if done is None or done >= limits["part"] * planned[0]:
        return None
    maker = shared_generators.maker(process) if done == 1 else None
    if maker is not None:
        return shared_generators.finding(optimization, rule, int(planned[0]), maker, limits)
    better = _better_each_time(process, int(limits["better"]))
    counted = process.locations("waits") if done > 1 and not better else []
    waits = counted[0] if len(counted) == 1 and not process.locations("waits-reset") else None
    if done > 1 and not better and waits is None:
        return None
    return _finding(optimization, rule, int(done), int(planned[0]), better and done > 1, waits, limits)


def _whole_passes(process: Process, optimization: Optimization) -> int | None:
    """Passes over the only training loader by a `for`; None if the last one was not whole, as where steps are counted.

    Epochs that take some batches each by `next` have no passes of their own.
    """
    steps, length = optimization.steps, _length(process)
    if length is None or not steps.has("loader_first"):
        return None
    fed = np.nan_to_num(steps["loader_batches"])
    begins = np.flatnonzero(steps["loader_first"] == 1)
    if not length or not len(begins) or not fed[-1]:  # batches that are kept, as by itertools.cycle, are fed no more
        return None
    return len(begins) if fed[begins[-1] :].sum() >= length - 1 else None  # an accumulation may leave its last batches


def _length(process: Process) -> int | None:
    """Batches in a pass over the only training loader, by a `for`."""
    loaders = {int(one) for one in validation.training_loaders(process)}
    rows = [row for row in process.loaders.records() if not row["iterable"] and _by_for(process, row)]
    lengths = {int(row["loader"]): row["length"] for row in rows}
    return lengths[loaders.pop()] if len(loaders) == 1 and loaders <= lengths.keys() else None


def worse_at_the_end(process: Process) -> bool:
    """Whether the last validation was not the best: a loop may be left for that."""
    _, losses, _ = validation.curve(process)
    known = losses[np.isfinite(losses)]
    return len(known) > 2 and int(np.argmin(known)) < len(known) - 1


def _whole_epoch(optimization: Optimization) -> int | None:
    """1 where no loader feeds the training, and the loop within that over the epochs was gone through once, to its end;
    None else: a number of steps that is no multiple of its rounds ended by a count of its own, as some multiples do."""
    planned = [row["value"] for row in optimization.process.events_of(BATCHES)]
    fed = np.isfinite(optimization.steps["loader"]).any() if optimization.steps.has("loader") else False
    return 1 if len(planned) == 1 and not fed and planned[0] == len(optimization.steps) else None


def _by_for(process: Process, loader: dict[str, Any]) -> bool:
    place = process.site(loader["site"])
    return place is not None and re.search(r"\bfor\b", place.source) is not None


def _better_each_time(process: Process, fewest: int) -> bool:
    """Whether each of the last validations was the best so far."""
    _, losses, _ = validation.curve(process)
    last = losses[-fewest:]
    return len(losses) >= fewest and bool(np.isfinite(losses).all() and (np.diff(last) < 0).all())


def _finding(
    optimization: Optimization, rule: str, done: int, planned: int, better: bool, waits: Location | None, limits: Limits
) -> Finding:
    """`waits`: the line that counts the epochs without progress, where nothing sets its number back."""
    process = optimization.process
    loop = process.location("epochs")
    where = f" (line {loop.line})" if loop else ""
    how = (
        f"The last {limits['better']:.0f} validations were each better than all before: nothing in them asks to stop."
        if better
        else f"Line {waits.line} counts the epochs without progress, and no line sets that number back when there is "
        "some: it stops a training that still becomes better now and then."
        if waits
        else "A return or a break that stands one level too deep does that."
    )
    return Finding(
        rule=rule,
        severity="info" if better or waits else "warning",
        confidence="likely",
        title=f"The loop ended after {plural(done, 'epoch')} of {planned:,}",
        summary=(
            f"The loop over the epochs{where} is written for {planned:,}. It was left after "
            f"{plural(done, 'whole pass')} over the training data, without an error, and the program ended by itself. "
            f"{how}"
        ),
        fix="Look at what leaves that loop: a return or a break in it, or what counts the epochs without progress.",
        fix_code="if loss < best:\n    best, waited = loss, 0  # the count begins again\nelse:\n    waited += 1"
        if waits
        else "for epoch in range(epochs):\n    for batch in loader:\n        train_step(batch)\n"
        "return model  # behind the loop, not in it",
        first_step=timing.last_step(optimization),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence(
                "epochs made, of those of the loop", done / planned, "share", *limits.against("part"), role="most"
            ),
            Evidence("epochs of the loop", planned, "epochs", *limits.against("epochs")),
        ],
        location=waits or loop or optimization.step_location,
        charts=pictures.loss(optimization),
        false_alarm="A trial run, a target that was reached, or a limit on time.",
    )
