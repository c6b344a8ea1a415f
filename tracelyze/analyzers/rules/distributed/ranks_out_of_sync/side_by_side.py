"""Pictures of several ranks in one: their losses over each other, and how far their weights are apart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.ranks import weights
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.evidence.charts import chart
from tracelyze.analyzers.evidence.pictures import WIDE
from tracelyze.diagnosis import Mark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracelyze.analyzers.computed.ranks.weights import Sums
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Chart


def learning(process: Process, others: Sequence[Process], since: int) -> list[Chart]:
    """What should be the same on all of these ranks and is not, since that step: losses and weights."""
    marks = [Mark(float(since), f"since step {since:,}")]
    sums = {one.rank: weights.sums_of(one) for one in others}
    return losses([process, *others], marks) + distances(process, weights.sums_of(process), sums, marks)


def losses(processes: Sequence[Process], marks: Sequence[Mark] = ()) -> list[Chart]:
    """The training loss of each rank over the steps, one line each; none where fewer than two ranks have a loss."""
    having = [one for one in processes if one.optimizations and one.steps.has("loss")]
    if len(having) < 2:
        return []
    own = {f"rank {one.rank}": (timing.numbers(one.longest), one.longest.steps) for one in having}
    x = np.unique(np.concatenate([numbers for numbers, _ in own.values()]))
    lines, known = {}, {}
    for name, (numbers, steps) in own.items():
        places = np.searchsorted(x, numbers)
        lines[name], known[name] = np.full(len(x), np.nan), np.zeros(len(x), dtype=bool)
        lines[name][places], known[name][places] = steps["loss"], steps.known("loss")
    finite = np.concatenate([values[np.isfinite(values)] for values in lines.values()])
    wide = len(finite) > 0 and float(finite.min()) > 0 and float(finite.max()) > WIDE * float(finite.min())
    drawn = chart("Training loss of each rank", "step", "loss", x, lines, known=known, marks=marks, log_y=bool(wide))
    return [replace(drawn, shows="loss")]


def distances(
    process: Process, own: Mapping[int, Sums], others: Mapping[int, Mapping[int, Sums]], marks: Sequence[Mark] = ()
) -> list[Chart]:
    """How far the weights of `others` (by rank) are from those of `process`, in percent, at the steps all looked at."""
    steps = sorted(set(own).intersection(*others.values()))
    if len(steps) < 2 or not others:
        return []
    x = np.array(steps, dtype=np.float64)
    lines = {
        f"rank {rank}": np.array([100 * weights.apart(own[step], theirs[step]) for step in steps])
        for rank, theirs in others.items()
    }
    return [chart(f"Weights: distance from rank {process.rank}", "step", "% of a tensor's norm", x, lines, marks=marks)]
