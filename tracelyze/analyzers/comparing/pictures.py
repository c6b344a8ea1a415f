"""Both runs over each other: the loss, the time per step and the gradient norm of the longest training of each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.comparing.runs import longest
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.evidence.charts import chart
from tracelyze.analyzers.evidence.pictures import SIZES, WIDE

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Run
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.diagnosis import Chart, Unit

COLUMNS: Final[tuple[tuple[str, str, str, Unit], ...]] = (
    ("Training loss", "loss", "loss", ""),
    ("Time per step", "milliseconds", "seconds", "ms"),
    ("Gradient norm", "L2 norm", "grad_norm", ""),
)
"""Title, name of the y axis, column of the step table, and the unit in which its values are drawn."""


def charts(one: Run, two: Run) -> list[Chart]:
    """A chart for each quantity that both runs recorded, with a line for each; none where one trained nothing."""
    a, b = (next(iter(longest(run)), None) for run in (one, two))
    if a is None or b is None:
        return []
    return [
        _over(a, b, title, y_label, column, unit)
        for title, y_label, column, unit in COLUMNS
        if a.steps.known(column).any() and b.steps.known(column).any()
    ]


def _over(a: Optimization, b: Optimization, title: str, y_label: str, column: str, unit: Unit) -> Chart:
    steps = np.union1d(timing.numbers(a), timing.numbers(b))
    lines: dict[str, Floats] = {}
    known = {}
    for name, optimization in (("A", a), ("B", b)):
        values, measured = np.full(len(steps), np.nan), np.zeros(len(steps), dtype=bool)
        places = np.searchsorted(steps, timing.numbers(optimization))
        values[places] = optimization.steps[column] / SIZES[unit]
        measured[places] = optimization.steps.known(column)
        lines[name], known[name] = values, measured
    finite = np.concatenate([values[np.isfinite(values)] for values in lines.values()])
    wide = len(finite) > 0 and float(finite.min()) > 0 and float(finite.max()) > WIDE * float(finite.min())
    rank = a.process.rank if a.process.rank == b.process.rank else None
    log = wide and unit != "ms"
    drawn = chart(title, "step", y_label, steps, lines, known=known, log_y=log, unit=unit)
    return replace(
        drawn, about="" if rank is None else f"rank {rank}", rank=rank, shows="loss" if column == "loss" else ""
    )
