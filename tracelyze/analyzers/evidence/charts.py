"""Pictures of the evidence: columns become :class:`diagnosis.Chart`, thinned so that nothing that matters is lost."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tracelyze.diagnosis import Chart, Line, Mark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracelyze.analyzers.recorded.table import Floats, Mask
    from tracelyze.diagnosis import Unit

MAX_POINTS = 300
MAX_SCATTERED = 80


def chart(
    title: str,
    x_label: str,
    y_label: str,
    x: Floats,
    lines: Mapping[str, Floats],
    *,
    known: Mapping[str, Mask] | None = None,
    scattered: Mapping[str, tuple[Floats, Floats]] | None = None,
    marks: Sequence[Mark] = (),
    threshold: float | None = None,
    threshold_label: str = "",
    log_y: bool = False,
    steps: bool = False,
    unit: Unit = "",
) -> Chart:
    """A chart of `lines` (each of shape [len(x)]) over the steps `x`, which increase, with at most 300 points.

    `scattered` holds sparse series with positions of their own, such as validation losses: drawn as points at the
    nearest position of `x`. Buckets keep their smallest and largest values, and all marked positions stay. NaN and Inf
    become gaps, the first of them in each line is marked, unless `marks` say so there. `known` says where a line was
    measured, so that "not measured" is not taken for NaN; positions where no line was measured are left out.
    """
    x = np.asarray(x, dtype=np.float64)
    series = {name: np.asarray(values, dtype=np.float64) for name, values in lines.items()}
    measured = {
        name: (known or {}).get(name, np.isfinite(values) | np.isinf(values)) for name, values in series.items()
    }
    drawable = np.logical_or.reduce(list(measured.values())) if measured else np.ones(len(x), dtype=bool)
    x, series = x[drawable], {name: values[drawable] for name, values in series.items()}
    points = {name: _nearest(x, *pair) for name, pair in (scattered or {}).items()}
    broken = {name: _first(measured[name][drawable] & ~np.isfinite(values)) for name, values in series.items()}
    wanted = [index for index in broken.values() if index is not None]
    wanted += [int(np.argmin(np.abs(x - mark.x))) for mark in marks if len(x)]
    for places, _ in points.values():
        wanted += places.tolist()
    kept = thin(x, list(series.values()), wanted)
    drawn = [Line(name, plain(values[kept], log_y), "steps" if steps else "line") for name, values in series.items()]
    for name, (places, values) in points.items():
        column = np.full(len(x), np.nan)
        column[places] = values
        drawn.append(Line(name, plain(column[kept], log_y), "points"))
    notes = [
        Mark(float(x[index]), f"first {_what(series[name][index])} in {name}", "not-finite")
        for name, index in broken.items()
        if index is not None and not any(mark.x == x[index] and mark.kind == "not-finite" for mark in marks)
    ]
    return Chart(
        title,
        x_label,
        y_label,
        x[kept].tolist(),
        drawn,
        [*marks, *notes],
        threshold,
        threshold_label,
        log_y,
        over="steps",
        unit=unit,
    )


def thin(
    x: Floats, series: Sequence[Floats], wanted: Sequence[int] = (), limit: int = MAX_POINTS
) -> npt.NDArray[np.intp]:
    """Indices to draw, increasing, at most `limit`: both ends, `wanted`, and each bucket's extremes of each series."""
    if len(x) <= limit:
        return np.arange(len(x))
    keep = {0, len(x) - 1, *list(dict.fromkeys(wanted))[: limit // 2]}
    buckets = max(1, (limit - len(keep)) // (2 * max(1, len(series))))
    bounds = np.linspace(0, len(x), buckets + 1).astype(np.intp)
    for values in series:
        finite = np.isfinite(values)
        low, high = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
        for a, b in itertools.pairwise(bounds):
            keep.add(int(a + np.argmin(low[a:b])))
            keep.add(int(a + np.argmax(high[a:b])))
    return np.array(sorted(keep), dtype=np.intp)


def plain(values: Floats, positive: bool = False) -> list[float | None]:
    """Numbers for a chart: None where a value is not finite, or not positive if the axis is logarithmic."""
    drawable = np.isfinite(values) & ((values > 0) if positive else True)
    return [float(value) if ok else None for value, ok in zip(values, drawable, strict=True)]


def _nearest(x: Floats, at: Floats, values: Floats) -> tuple[npt.NDArray[np.intp], Floats]:
    """Positions in `x` next to `at`, and the values there; at most 80, spread evenly, extremes kept."""
    if len(x) == 0 or len(at) == 0:
        return np.empty(0, dtype=np.intp), np.empty(0)
    chosen = thin(np.arange(len(at), dtype=np.float64), [values], limit=MAX_SCATTERED)
    return np.clip(np.searchsorted(x, at[chosen]), 0, len(x) - 1), values[chosen]


def _first(flags: Mask) -> int | None:
    """Index of the first true value."""
    places = np.flatnonzero(flags)
    return int(places[0]) if len(places) else None


def _what(value: float) -> str:
    return "NaN" if np.isnan(value) else "Inf"
