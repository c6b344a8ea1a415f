"""Iterable datasets that yield their samples in the order of the labels, pass after pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rules.data.no_shuffle import label_order
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

Row = dict[str, Any]

COMPARED: Final = 1000  # batches, each with each: a million pairs take some 40 ms
SHOWN: Final = 5  # batches whose labels a sentence can bear
FIX: Final = (
    "Mix the labels where the stream is made: shuffle all that it reads, across its files, anew for each pass. A "
    "shuffle buffer mixes only what it holds: it has to hold many more samples than come of one label in a row."
)
CODE: Final = """# in __iter__ of {dataset}, in place of its own order; samples: all that a pass yields
order = torch.randperm(len(samples)).tolist()  # anew for each pass
yield from (samples[i] for i in order)

# where they do not fit into memory: write samples of all labels into each file, and shuffle within files"""


def find(process: Process, loader: Row, limits: Limits) -> list[Row]:
    """Batches of an iterable dataset, by their places in a pass, if each covers a small part of the range of labels and
    the later ones hold the higher labels (or the lower ones) in several passes. A stream that is read once may come
    as it comes, and tasks that follow each other do not come back."""
    if len(process.optimizations) != 1 or not loader["iterable"]:
        return []
    calls = [row for row in process.tables["loss_calls"].records() if row["training"]]
    known = [row for row in calls if row["loader"] == loader["loader"] and label_order.is_class_of_samples(row)]
    known = [row for row in known if int(row["target_shape"]) >= limits["samples"]]
    rows = _in_passes(process, loader["loader"], known)
    rows += label_order.handed_out(process, loader["loader"], known, limits)
    spread = label_order.covered(rows, limits)
    if spread is None or spread > limits["width"]:
        return []
    again = {_middle(row) for row in rows if row["epoch"] > min(one["epoch"] for one in rows)}
    rows.sort(key=lambda row: (row["batch"], row["epoch"]))
    return rows if len(again) > 1 and _in_order(rows) >= limits["sorted"] else []


def _in_passes(process: Process, loader: int, known: list[Row]) -> list[Row]:
    """The rows with the pass and the place in it of their batch, where a step takes one batch."""
    steps = process.longest.steps
    begins = np.flatnonzero((steps["loader"] == loader) & (steps["loader_first"] == 1))
    placed = []
    for row in known:
        before = begins[begins <= row["step"]]
        if len(before):
            placed.append(row | {"epoch": len(before) - 1, "batch": int(row["step"] - before[-1])})
    return placed


def _middle(row: Row) -> float:
    return float(row["target_lowest"] + row["target_highest"]) / 2


def _in_order(rows: list[Row]) -> float:
    """Of the pairs of batches at different places and with different labels, the share in which the later one has the
    higher labels; or the lower ones, if that is more."""
    some = rows[:: -(-len(rows) // COMPARED)]
    places, labels = np.array([row["batch"] for row in some], float), np.array([_middle(row) for row in some], float)
    signs = np.sign(np.subtract.outer(places, places) * np.subtract.outer(labels, labels))
    signs = signs[signs != 0]
    rising = float(np.mean(signs > 0)) if len(signs) else 0.0
    return max(rising, 1 - rising) if len(signs) else 0.0


def finding(process: Process, rule: str, loader: Row, rows: list[Row], limits: Limits) -> Finding:
    """`rows`: what :func:`find` found."""
    spread = label_order.covered(rows, limits) or 0.0
    held = f"covers {percent(spread)} of their range" if spread else "mostly holds one of them"
    different = list({(row["target_lowest"], row["target_highest"]): row for row in rows}.values())
    shown = label_order.shown(different[:: -(-len(different) // SHOWN)])
    passes = len({row["epoch"] for row in rows})
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title="The training stream comes in the order of its labels, pass after pass",
        summary=(
            f"{loader['dataset']} yields its samples by their labels: a batch {held} (labels of some batches, from the "
            f"start of a pass to its end: {shown}). The batches that were looked at, of {passes:,} passes, keep to "
            "this order. Each batch pulls the network towards the labels that it holds, and the last batches of a pass "
            "win. A DataLoader does not shuffle an iterable dataset."
        ),
        fix=FIX,
        fix_code=CODE.format(dataset=loader["dataset"]),
        first_step=min(int(row["step"] or 0) for row in rows) + 1,
        evidence=[
            Evidence("range of labels within a batch", spread, "share", *limits.against("width"), role="most"),
            Evidence("pairs of batches in the order of their labels", _in_order(rows), "share",
                     *limits.against("sorted")),
            Evidence("batches looked at", len(rows), "batches", *limits.against("batches"), role="basis"),
        ],
        location=process.loader_location(loader),
        seen_at=process.site(loader["site"]),
        charts=pictures.loss(process.longest),
        false_alarm="An order that is the point of the training, such as a curriculum from class to class.",
    )  # fmt: skip
