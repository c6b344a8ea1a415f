"""A loss that is no number because its batch holds one sample, of which a deviation was taken."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.script.datasets import batch_of_one
from tracelyze.analyzers.script.loss import broken_operation
from tracelyze.analyzers.script.loss.singular_gradients import Spoiled
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

_SPREAD: Final = re.compile(r"^(?:std|var) of a single value$")
_ELSE: Final = (
    "ake a deviation that one sample has, too (unbiased=False), and keep it above 0 where something is divided by it."
)
_EXAMPLE: Final = "spread = values.std(0, unbiased=False).clamp_min(1e-3)  # 0 of a single value, and no NaN"


def of(optimization: Optimization, row: int, step: int) -> Spoiled | None:
    """Of a loss that the graph showed to be broken by such a deviation, in a batch of one sample after larger ones."""
    steps = optimization.steps
    operations = broken_operation.seen(optimization.process, step).operations
    sizes = steps["batch_size"] if steps.has("batch_size") else np.full(len(steps), np.nan)
    usual = float(np.nanmedian(sizes[:row])) if np.isfinite(sizes[:row]).any() else 0.0
    if not operations or not all(_SPREAD.search(one) for one in operations) or sizes[row] != 1 or usual <= 1:
        return None
    taken = broken_operation.line(optimization.process, step)
    where = f" Line {taken.line} takes the deviation." if taken is not None else ""
    told = f"This batch holds 1 sample, where the usual one holds {number(usual)}."
    loader = optimization.loader
    begun = np.flatnonzero(np.nan_to_num(steps["loader_first"][: row + 1]) == 1)
    fetched = int(np.nansum(steps["loader_batches"][begun[-1] : row + 1])) if len(begun) else 0
    if not loader.get("length") or loader.get("drop_last") or fetched != loader["length"]:
        return Spoiled(told, f"T{_ELSE}", _EXAMPLE, None, None)
    told = (
        f"This batch holds 1 sample, where the usual one holds {number(usual)}: it is the last of {fetched:,}.{where}"
    )
    diff, place = batch_of_one.left_out(optimization.process)
    fix = f"Have the loader leave its last batch out (drop_last=True), or t{_ELSE}"
    return Spoiled(told, fix, batch_of_one.example(optimization.process), diff, place)
