"""The module of a watched forward that put out NaN or Inf first, and how large numbers had become before it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Row = dict[str, Any]
WHAT: Final = {1: "NaN", 2: "Inf"}


def first(rows: list[Row]) -> Row | None:
    """The first module of a forward that is not finite; None if its weights are not, or the forward is fine."""
    broken = [row for row in rows if row["nonfinite"] in WHAT]
    if not broken:
        return None
    if any(row["weights_finite"] is False for row in broken):  # one look at a forward may have two rows of a module
        return None
    return min(broken, key=lambda row: (row["order"], row["weights_finite"] is None))


def is_loss(row: Row, rows: list[Row]) -> bool:
    """Whether it is the one number that a model puts out, of modules that were all finite: the loss that it computes
    itself, which has a rule of its own."""
    inside = f"{row['module']}." if row["module"] else ""
    return row["elements"] == 1 and any(one is not row and one["module"].startswith(inside) for one in rows)


def largest_before(root: Row, rows: list[Row]) -> float:
    """The largest number that modules put out before this one in its forward; 0 in float16, which ends at 65,504."""
    before = [row["largest"] for row in rows if row["order"] < root["order"] and row["largest"] is not None]
    known = [float(one) for one in before if np.isfinite(one)]
    return max(known, default=0.0) if root["dtype"] != "float16" else 0.0
