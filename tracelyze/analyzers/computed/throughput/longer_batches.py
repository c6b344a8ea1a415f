"""Slow steps whose batches are far larger than usual by their shapes: padded to one long sample, say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.evidence import timing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.diagnosis import Location

LARGER: Final = 1.5  # times the usual elements
FEWEST: Final = 3  # slow steps whose batches were looked at: two may be large by chance
OFTEN: Final = 0.1  # share of the other steps: what is large there as well makes no step slow


@dataclass(frozen=True)
class Longer:
    """`share`: part of the excess of the slow steps that were looked at; how many these are, and how many were longer;
    the shape of one of these, and the usual one."""

    share: float
    looked: int
    longer: int
    shape: str
    usual: str
    place: Location | None


def of(optimization: Optimization, rows: Sequence[int], excess: Floats) -> Longer | None:
    """What shapes tell of the slow steps `rows`; None where too few were looked at, or others are as large."""
    process = optimization.process
    batches: dict[str, dict[int, Any]] = {}  # by field: by step
    for row in process.tables["batches"].shared_records():
        if row["trained"] and row["shape"] and row["step"] is not None and "x" in str(row["shape"]):
            batches.setdefault(str(row["field"]), {})[int(row["step"]) + 1] = row
    found = [one for field in batches.values() if (one := _of_field(optimization, rows, excess, field)) is not None]
    return max(found, key=lambda one: one.share, default=None)


def _of_field(optimization: Optimization, rows: Sequence[int], excess: Floats, field: dict[int, Any]) -> Longer | None:
    slow = dict(zip(timing.numbers(optimization)[np.asarray(rows, int)].astype(int).tolist(), excess, strict=True))
    sizes = {step: math.prod(map(int, str(row["shape"]).split("x"))) for step, row in field.items()}
    usual = statistics.median(np.array(list(sizes.values()), float))
    large = {step for step, size in sizes.items() if size > LARGER * usual}
    looked, others = [step for step in slow if step in sizes], [step for step in sizes if step not in slow]
    longer = [step for step in looked if step in large]
    if len(looked) < FEWEST or not longer or sum(step in large for step in others) > OFTEN * len(others):
        return None
    share = float(sum(slow[step] for step in longer) / sum(slow[step] for step in looked))
    typical = min(sizes, key=lambda step: abs(sizes[step] - usual))
    shape = str(field[longer[0]]["shape"])
    place = _put_together(optimization.process, field[longer[0]])
    return Longer(share, len(looked), len(longer), shape, str(field[typical]["shape"]), place)


def _put_together(process: Process, batch: Any) -> Location | None:
    """The line of the script that puts samples together, else the one that reads the loader."""
    loader = next((row for row in process.loaders.records() if row["loader"] == batch["loader"]), None)
    return process.site(loader.get("collated_by")) or process.site(loader.get("site")) if loader else None
