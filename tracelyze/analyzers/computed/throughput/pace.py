"""The time that a training's steps take of their own, and where it goes late in the run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.throughput import contention, outliers

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats, Mask
    from tracelyze.diagnosis import Location

_FEWEST_STACKS: Final = 3  # one or two stacks may be anywhere
_MOST_LINES: Final = 6
_MODEL: Final = ("torch/nn/", "torch/autograd/", "torch/_tensor.py", "torch/optim/")


def own_seconds(optimization: Optimization, warm_up: int) -> tuple[Floats, Mask]:
    """Seconds of each step without evaluations and recording, and the steps to be judged (`outliers.net_seconds`)."""
    net, judged = outliers.net_seconds(optimization, warm_up)
    return np.maximum(net - np.nan_to_num(optimization.steps["overhead"]), 0.0), judged


def crowded(optimization: Optimization) -> Floats:
    """Seconds of each step in which it was ready to run and others had its processor, shape [steps]; 0 where unknown.

    Measurements are a second apart, so that this is right over many steps, and not for each.
    """
    ends = optimization.steps["time"]
    return contention.within(optimization.process, ends - np.nan_to_num(optimization.steps["seconds"]), ends)


def times_longer(values: Floats, judged: Mask) -> float:
    """Median of the last third of the judged steps over that of the first; 1 where that is not above 0."""
    third = max(1, int(judged.sum()) // 3)
    first = float(np.median(np.nan_to_num(values[judged])[:third]))
    return (first + increase(values, judged)) / first if first > 0 else 1.0


def increase(values: Floats, judged: Mask) -> float:
    """Median of the last third of the judged steps less that of the first; unknown values count as 0."""
    third = max(1, int(judged.sum()) // 3)
    known = np.nan_to_num(values[judged])
    return float(np.median(known[-third:]) - np.median(known[:third]))


def within_model_late(optimization: Optimization) -> float | None:
    """Share of the measurements in the last third that met the program in a module, a backward or an optimizer; None if
    there are too few such measurements, or the work is done on a device and the program only waits for it."""
    samples, ends = optimization.process.samples, optimization.steps["time"]
    late = samples["time"] >= ends[2 * len(ends) // 3]
    places = [place for place, is_late in zip(samples.text("innermost"), late, strict=True) if is_late and place]
    if len(places) < _FEWEST_STACKS or optimization.process.device != "cpu":
        return None
    return sum(any(part in place for part in _MODEL) for place in places) / len(places)


def seen_late(optimization: Optimization) -> Location | None:
    """The line at which the sampler found the program most often in the last third, if that is most of the time."""
    samples, ends = optimization.process.samples, optimization.steps["time"]
    return _most_seen(optimization, samples["time"] >= ends[2 * len(ends) // 3])


def seen_outside_of_backward(optimization: Optimization) -> tuple[tuple[Location, float], ...]:
    """The lines at which the sampler found the program several times between backwards, with their share of that time,
    the most frequent first."""
    process, backward = optimization.process, optimization.backward_location
    line = None if backward is None else backward.line
    within = [row["site"] for row in process.sites.records() if row["line"] == line]
    sites = process.samples["site"]
    counts = Counter(sites[~np.isin(sites, within) & np.isfinite(sites)].tolist())
    lines: Counter[Location] = Counter()
    for site, count in counts.items():
        if (place := process.site(site)) is not None:
            lines[place] += count
    return tuple((place, count / counts.total()) for place, count in lines.most_common(_MOST_LINES) if count > 1)


def _most_seen(optimization: Optimization, when: Mask) -> Location | None:
    """The line of most of the samples in `when`, shape [samples]; None where no line has most of them, or two."""
    sites = optimization.process.samples["site"]
    counts = Counter(sites[when & np.isfinite(sites)].tolist())
    site, count = counts.most_common(1)[0] if counts else (None, 0)
    return optimization.process.site(site) if count >= max(2, outliers.EXPLAINED * counts.total()) else None
