"""Loops that take the first batch of a new iterator in every step, from a loader that never shuffles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.computed.data import passes
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.script.editing import loader_arguments
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

Row = dict[str, Any]


def finding(process: Process, rule: str, loader: Row, limits: Limits) -> Finding | None:
    """The finding, if a line of the script calls iter(loader) in every step, and all train on one and the same batch.

    A dataset that makes its samples up at random is read in order as well: the contents must be the same. A framework
    that is told to learn a single batch by heart (overfit_batches) iterates by itself.
    """
    place = process.site(loader["site"])
    if place is None or "iter(" not in place.source:
        return None
    steps = process.steps
    fed = steps["loader"] == loader["loader"]
    begun = int((fed & (steps["loader_first"] == 1)).sum())
    length = int(loader["length"] or 0)
    if length < 2 or begun < limits["begun"] or begun < limits["always"] * fed.sum():
        return None
    seen = [one.batches for one in passes.of_training(process) if one.loader == loader["loader"]]
    contents = {content for batches in seen for content in batches.values()}
    if len(seen) < limits["passes"] or len(contents) > 1:
        return None
    optimization = process.longest if process.optimizations else None
    return Finding(
        rule=rule,
        severity="critical",
        confidence="certain",
        title=f"Every step trains on the first batch of {loader['dataset']}, of {plural(length, 'batch', 'batches')}",
        summary=(
            f"A new iterator over the loader was made for {plural(begun, 'step')}, and each got its first batch. The "
            f"loader does not shuffle, so this is always the same batch: the other {length - 1:,} were never trained "
            "on."
        ),
        fix="Make the iterator once per epoch, and shuffle the training data.",
        fix_code=f"{loader_arguments.example(process, loader, {'shuffle': 'True'})}\n"
        "for batch in loader:  # not next(iter(loader)) in every step\n    ...  # the step, as it is",
        first_step=1,
        evidence=[
            Evidence("iterators made", begun, "iterators", *limits.against("begun")),
            Evidence("first batches compared, all equal", len(seen), "batches", limits["passes"], role="basis"),
            Evidence("batches that the loader has", length, "batches"),
        ],
        location=place,
        charts=pictures.loss(optimization) if optimization else [],
        false_alarm="A test whether the model can learn a single batch by heart.",
    )
