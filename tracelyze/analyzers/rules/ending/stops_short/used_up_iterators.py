"""Epochs without a batch: an iterator over the training loader that had given all it has in an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rules.ending.stops_short import own_iterators
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

KIND = "exhausted-again"
_WITH_THE_LOADER = (
    "Loop over the loader itself: each epoch then begins a new iterator, and the loader reshuffles for it."
)
_MADE_ANEW = (
    "Create a new iterator inside the epoch loop, together with whatever it does to the batches: the loader then "
    "reshuffles for each epoch."
)


def finding(process: Process, rule: str, limits: Limits) -> Finding | None:
    """The finding about an iterator that was asked for batches several times after its end, without a step after
    that."""
    if not process.optimizations:
        return None
    asked = process.events_of(KIND)
    done = len(process.steps)
    empty = [row for row in asked if row["step"] >= done]
    if len(empty) < limits["asked"] or len(empty) < len(asked):
        return None
    optimization, times = process.longest, len(empty)
    asked_at = process.site(empty[0]["value"])
    edit = own_iterators.loader_in_its_place(process, asked_at)
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"{plural(times, 'epoch')} had no batch: the iterator over the loader was used up",
        summary=(
            f"After step {done:,} the loop asked the same iterator over its loader {plural(times, 'more time')}, and "
            "got nothing: an iterator yields each batch only once. All later epochs trained nothing and raised no "
            "error; whatever they printed or saved comes from the first."
        ),
        fix=_WITH_THE_LOADER if edit else _MADE_ANEW,
        fix_code=own_iterators.made_anew(process, asked_at),
        first_step=timing.last_step(optimization),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("times that it was asked after its end", times, "times", *limits.against("asked")),
            Evidence("steps made after that", 0, "steps"),
        ],
        location=own_iterators.made_at(process, asked_at) or asked_at or optimization.step_location,
        seen_at=asked_at,
        diff=edit,
        charts=pictures.loss(optimization),
        false_alarm="A program that keeps asking an iterator that it knows is exhausted.",
    )
