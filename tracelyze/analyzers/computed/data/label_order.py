"""Labels of batches in the order in which a loader hands them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze import reading

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

Row = dict[str, Any]


def handed_out(process: Process, loader: int, known: list[Row], limits: Limits) -> list[Row]:
    """The same of batches as the loader handed them out, whose field is the target at all steps that are known."""
    given = {row["step"]: (row["target_lowest"], row["target_highest"]) for row in known}
    fields: dict[str, list[Row]] = {}
    for row in process.tables["batches"].records():
        if row["loader"] == loader and row["trained"] and row["classes"]:
            counts = {float(label): count for label, count in reading.parse_object(row["classes"]).items()}
            if sum(counts.values()) >= limits["samples"]:
                found = {"step": row["step"], "target_lowest": min(counts), "target_highest": max(counts)}
                fields.setdefault(row["field"], []).append(found)
    for rows in fields.values():
        same = [given[r["step"]] == (r["target_lowest"], r["target_highest"]) for r in rows if r["step"] in given]
        if len(same) >= limits["ends"] and all(same):
            return [row for row in rows if row["step"] not in given]
    return []


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
