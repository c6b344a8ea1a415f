"""Loaders that read their dataset from the first index to the last, pass after pass: whether samples come again."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.script.editing import loader_arguments
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

Row = dict[str, Any]


def keeps_it(loader: Row) -> bool:
    """Whether a loader reads a map-style dataset in its own order. So does a DistributedSampler that does not
    shuffle: each rank gets every so-manieth sample."""
    in_order = loader["sampler"] == "SequentialSampler" or loader.get("shuffled") is False
    return bool(in_order and not loader["iterable"])


def comes_again(process: Process, loader: int, least: float) -> bool | None:
    """Whether the batches of a pass hold the samples that the pass before held at the same place; None if none of them
    was looked at.

    Augmented inputs differ, and what they belong to stays: one field that comes again is enough. A dataset that draws
    its samples, whatever the index, gives nothing again.
    """
    seen: dict[tuple[str, int], dict[int, str]] = {}
    for row in process.tables["batches"].shared_records():
        if row["loader"] == loader and row["trained"] and row["print"]:
            seen.setdefault((str(row["field"]), int(row["batch"])), {})[int(row["epoch"])] = str(row["print"])
    told: dict[str, set[str]] = {}  # a field that is ever the same tells nothing
    for (field, _), prints in seen.items():
        told.setdefault(field, set()).update(prints.values())
    pairs: dict[str, list[bool]] = {}
    for (field, _), prints in seen.items():
        contents = [prints[epoch] for epoch in sorted(prints)]
        if len(told[field]) > 1:
            pairs.setdefault(field, []).extend(a == b for a, b in pairwise(contents))
    shares = [sum(equal) / len(equal) for equal in pairs.values() if equal]
    return max(shares) >= least if shares else None


def finding(process: Process, rule: str, loader: Row, count: int, same: bool | None, limits: Limits) -> Finding:
    """The hint that order alone is worth. `same`: the samples were seen to come again."""
    held = (
        "batches always hold the same samples, and the last ones of an epoch have the last word."
        if same
        else "if an index always stands for the same sample, batches always hold the same ones."
    )
    training = validation.training_loaders(process).tolist()
    shuffling = loader_arguments.shuffling(process, loader, training)
    return Finding(
        rule=rule,
        severity="info",
        confidence="certain" if same else "likely",
        title=f"Each of {plural(count, 'epoch')} reads the training data in the same order",
        summary=(
            f"The loader reads {loader['dataset']} from its first sample to its last in each of "
            f"{plural(count, 'epoch')}. Where that is not the order of the labels it does little harm: {held}"
        ),
        fix=f"Unless the order matters: {shuffling.fix[0].lower()}{shuffling.fix[1:]}",
        fix_code=shuffling.code,
        evidence=[
            Evidence("sampler", loader["sampler"], role="setting"),
            Evidence("passes over the loader", count, "passes", *limits.against("passes")),
        ],
        location=shuffling.place,
        seen_at=process.site(loader["site"]),
        false_alarm="Time series, chunks of one stream, a curriculum.",
        diff=shuffling.diff,
        setting=shuffling.setting,
    )
