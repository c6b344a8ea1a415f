"""Labels of batches in the order in which a loader hands them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze import reading
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

Row = dict[str, Any]


def handed_out(process: Process, loader: int, known: list[Row], limits: Limits) -> list[Row]:
    """Labels of further batches that the loader handed out, in the field that was the target at all `known` steps."""
    given = {row["step"] for row in known}
    return [row for row in _targets(process, loader, known, limits) if row["step"] not in given]


def _targets(process: Process, loader: int, known: list[Row], limits: Limits) -> list[Row]:
    """Labels of all batches of a loader that were looked at, in that field. A loader that is asked for its next batch
    before the step (accelerate's) hands out all but the first of a pass one step early."""
    given = {row["step"]: (row["target_lowest"], row["target_highest"]) for row in known}
    fields: dict[str, list[Row]] = {}
    for row in process.tables["batches"].records():
        if row["loader"] == loader and row["trained"] and row["classes"]:
            counts = {float(label): count for label, count in reading.parse_object(row["classes"]).items()}
            if sum(counts.values()) >= limits["samples"]:
                found = {name: row[name] for name in ("step", "epoch", "batch")}
                found |= {"target_lowest": min(counts), "target_highest": max(counts)}
                fields.setdefault(row["field"], []).append(found)
    for rows in fields.values():
        for early in (0, 1):
            steps = [row | {"step": row["step"] + early * ((row["batch"] or 0) > 0)} for row in rows]
            same = [given[r["step"]] == (r["target_lowest"], r["target_highest"]) for r in steps if r["step"] in given]
            if len(same) >= limits["ends"] and all(same):
                return steps
    return []


def in_blocks(process: Process, loader: int, limits: Limits) -> list[Row]:
    """Batches that a loader hands out in an order of its own, if they hold one class each, class after class, in every
    pass. Classes that follow each other in one pass alone are tasks, of which each may be over for good."""
    if len(process.optimizations) != 1:
        return []
    calls = [row for row in process.tables["loss_calls"].records() if row["training"] and row["loader"] == loader]
    known = [row for row in calls if is_class_of_samples(row)]
    rows = _targets(process, loader, known, limits)
    pure = sorted((row for row in rows if _is_pure(row)), key=lambda row: (row["epoch"], row["batch"]))
    if len(pure) < max(limits["batches"], limits["share"] * len(rows)):
        return []
    passes: dict[int, list[float]] = {}
    for row in pure:
        passes.setdefault(row["epoch"], []).append(row["target_lowest"])
    if len(passes) < 2 or not all(_each_is_one_block(labels) for labels in passes.values()):
        return []
    most = max(passes.values(), key=len)
    several = [label for label in set(most) if most.count(label) >= limits["ends"]]
    again = all(set(labels) <= set(most) for labels in passes.values())
    return pure if again and len(several) >= limits["classes"] else []


def _each_is_one_block(labels: list[float]) -> bool:
    blocks = [label for at, label in enumerate(labels) if not at or label != labels[at - 1]]
    return len(blocks) == len(set(blocks))


def _is_pure(row: Row) -> bool:
    return bool(row["target_lowest"] == row["target_highest"] >= 0)


def shown(rows: list[Row]) -> str:
    """The labels of these batches, of each the lowest and the highest where they differ."""
    ends = [(number(row["target_lowest"]), number(row["target_highest"])) for row in rows]
    return ", ".join(low if low == high else f"{low} to {high}" for low, high in ends)


def covered(rows: list[Row], limits: Limits) -> float | None:
    """Median share of the range of labels that a batch covers, if nearly all cover little; 1 if not, None: unknown."""
    low, high = (np.array([row[name] for row in rows]) for name in ("target_lowest", "target_highest"))
    whole = high.max() - low.min() if rows else 0.0
    if len(rows) < limits["batches"] or not np.isfinite(whole) or whole <= 0:
        return None
    narrow = (high - low) <= limits["width"] * whole
    if narrow.mean() < limits["share"]:
        return 1.0
    ends = max(min((narrow & (high < label)).sum(), (narrow & (low >= label)).sum()) for label in np.unique(low))
    return float(np.median((high - low) / whole)) if ends >= limits["ends"] else None


def drawn_class_by_class(process: Process, limits: Limits) -> list[Row]:
    """Losses of batches that no loader made, if they hold one class each, class after class, pass after pass.

    A single model and optimizer, one batch a step. Tasks that follow each other do not come back to a class, batches
    that take turns have no runs of one, and two constant targets in turn belong to a discriminator.
    """
    if len(process.optimizations) != 1:
        return []
    rows = [row for row in process.tables["loss_calls"].records() if row["training"] and row["loader"] is None]
    rows = [row for row in rows if is_class_of_samples(row)]
    rows = [row for row in rows if int(row["target_shape"]) >= limits["samples"]]
    pure = [row for row in rows if _is_pure(row)]
    steps, labels = [row["step"] for row in pure], [row["target_lowest"] for row in pure]
    if len({row["step"] for row in rows}) < len(rows) or len({row["site"] for row in rows}) != 1:
        return []
    if len(pure) < max(limits["batches"], limits["share"] * len(rows)) or len(set(labels)) < limits["classes"]:
        return []
    following = [at for at in range(1, len(pure)) if steps[at] == steps[at - 1] + 1]
    runs = sum(labels[at] == labels[at - 1] for at in following)
    order = [label for at, label in enumerate(labels) if not at or label != labels[at - 1]]
    comes_back = len(order) > len(set(order))
    return pure if comes_back and following and runs >= limits["runs"] * len(following) else []


def is_class_of_samples(row: Row) -> bool:
    """Whether the targets of a loss are whole numbers that are known, one for each sample."""
    return bool(row["target_integer"]) and row["target_lowest"] is not None and _of_samples(row)


def _of_samples(row: Row) -> bool:
    """Whether a loss has one target for each sample: of sequences and pictures, every element has one."""
    return bool(row["target_shape"]) and "x" not in str(row["target_shape"])
