"""Loops without a loader that cut their batches, one behind the other, out of tensors that are sorted by label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.computed.data import repeated_order
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.script import script_lines
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

Row = dict[str, Any]


def slices(process: Process, limits: Limits) -> list[Row]:
    """Losses whose targets are slices of one tensor, if the inputs come in the order of theirs, in several passes.

    What is read once is a stream. A tensor that is shuffled later on has been looked at again by then.
    """
    order = repeated_order.of(process)
    calls = [row for row in process.tables["loss_calls"].records() if row["training"] and row["loader"] is None]
    rows = [row for row in calls if row.get("kept_rows") and _size(row) >= limits["samples"]]
    if order is None or order["adjoining"] < limits["adjoining"] or len(rows) < limits["ends"]:
        return []
    kept = {row["kept_rows"] for row in rows}
    if len(kept) > 1 or max(map(_size, rows)) > limits["width"] * min(kept):
        return []
    again = any(row["step"] * _size(row) >= row["kept_rows"] for row in rows)
    return rows if again or order["passes"] >= limits["passes"] else []


def are_sorted(rows: list[Row], limits: Limits) -> bool:
    """Whether each label is one block at all looks; numbers that are nearly all different only rise, or only fall."""
    return all(_is_sorted(row, limits) for row in rows)


def _size(row: Row) -> int:
    return int(str(row["target_shape"]).partition("x")[0] or 0)


def _is_sorted(row: Row, limits: Limits) -> bool:
    looked, values = row["kept_looked"], row["kept_values"]
    if looked < limits["samples"] / limits["width"] or values < 2:
        return False
    if values * limits["samples"] > looked and not row["target_integer"]:
        return bool(abs(row["kept_rising"]) == row["kept_blocks"] - 1)
    return bool(row["kept_blocks"] == values)


def finding(process: Process, rule: str, rows: list[Row], limits: Limits) -> Finding:
    """The finding about losses of these rows."""
    first, size = rows[0], max(map(_size, rows))
    labels, kept = int(first["kept_values"]), int(first["kept_rows"])
    classes = labels * limits["samples"] <= first["kept_looked"]
    holds = f"each of {plural(labels, 'label')} is one block" if classes else "they only rise, or only fall"
    return Finding(
        rule=rule,
        severity="critical" if classes else "warning",
        confidence="likely",
        title="Training data are sorted by label and never shuffled",
        summary=(
            f"Batches of {size} are sliced one after the other from {kept:,} samples, pass after pass, and these are "
            f"sorted by label: {holds}. A batch holds {percent(size / kept)} of the data, so it pulls the network "
            "towards its few labels, and the last batches of an epoch win."
        ),
        fix="Draw a new order for each epoch, and take the batches from it.",
        fix_code="for epoch in range(epochs):\n    order = torch.randperm(len(x))\n"
        "    for rows in order.split(batch_size):\n        loss = criterion(model(x[rows]), y[rows])",
        first_step=int(first["step"]) + 1,
        evidence=[
            Evidence("blocks of one label in the order of the data" if classes else "labels looked at, rising or equal",
                     int(first["kept_blocks"]), "", labels, "as many as labels: each has one", role="most"),
            Evidence("share of the data in a batch", size / kept, "share", *limits.against("width"),
                     role="most"),
            Evidence("batches looked at", len(rows), "batches", limits["ends"], role="basis"),
        ],
        location=script_lines.batches(process) or process.site(first.get("site")),
        seen_at=process.site(first.get("site")),
        charts=pictures.loss(process.longest) if process.optimizations else [],
        false_alarm="An order that is the point of the training, such as a curriculum from class to class.",
    )  # fmt: skip
