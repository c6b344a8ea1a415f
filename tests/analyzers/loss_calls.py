"""Rows of the table loss_calls, of a healthy loss but for the columns that a test replaces."""

from __future__ import annotations

from typing import Any

COUNT = 25


def calls(count: int = COUNT, **columns: Any) -> list[dict[str, Any]]:
    """Calls of cross_entropy on healthy scores [32, 10], one per step, with some columns replaced."""
    row = {
        "function": "cross_entropy",
        "site": 3,
        "training": True,
        "reduction": "mean",
        "input_shape": "32x10",
        "target_shape": "32",
        "target_integer": True,
        "made_by": "Addmm",
        "made_whole": True,
        "lowest": -4.0,
        "highest": 5.0,
        "sum_error": 30.0,
        "log_sum_error": 6.0,
        "value": 1.2,
    }
    return [{**row, "step": 10 * index, **columns} for index in range(count)]
