"""How many targets count in each micro-batch of a step, and whether the means over them are added up alike."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.evidence import timing

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

OF_TORCH: Final = ("cross_entropy", "nll_loss")
ALIKE: Final = 1.01  # of weights: they are counts and constants, rounded; that of bfloat16 is 1/256
Steps = list[list[float]]


class Means(NamedTuple):
    """`steps`: the numbers of targets that count in the losses of a step, for steps all of whose losses were looked at
    and whose means weigh alike. `looked`: those that were looked at, the others among them. `divided`: the means are
    divided by the number of micro-batches."""

    steps: Steps
    looked: int
    divided: bool = False


def of_means(optimization: Optimization) -> Means:
    """Over how many targets the losses of a step are means: by the graphs of the losses, which show masks, divisors and
    factors; else by what torch's losses were given."""
    looked = _by_graphs(optimization)
    if not looked:
        called = _by_calls(optimization)
        return Means(called, len(called))
    alike = [step for step in looked if _weigh_alike([weight for _, weight in step])]
    shares = [len(step) * weight for step in alike for _, weight in step]
    divided = len(shares) > 0 and bool(np.allclose(shares, 1.0, rtol=ALIKE - 1.0))
    return Means([[targets for targets, _ in step] for step in alike], len(looked), divided)


def _weigh_alike(weights: list[float]) -> bool:
    return min(weights) > 0 and max(weights) <= ALIKE * min(weights)


def _by_graphs(optimization: Optimization) -> list[list[tuple[float, float]]]:
    """Targets and the weight of their mean, of each micro-batch."""
    found: dict[int, list[tuple[float, float]]] = {}
    backwards = _backwards(optimization)
    table = optimization.process.tables.get("counted_targets")
    for row in table.records() if table is not None else ():
        if row["targets"] is not None and row["weight"] is not None and row["step"] is not None:
            found.setdefault(int(row["step"]) + 1, []).append((row["targets"], row["weight"]))
    return [pairs for step, pairs in found.items() if len(pairs) > 1 and len(pairs) == backwards.get(step)]


def _by_calls(optimization: Optimization) -> Steps:
    found: dict[int, list[float]] = {}
    backwards = _backwards(optimization)
    for line in loss_calls.lines(optimization.process, OF_TORCH):
        for row in line.rows if line.training else ():
            if row["ignored"] is not None and row["reduction"] == "mean":
                counting = (1.0 - row["ignored"]) * prod(loss_calls.sizes(row["target_shape"]))
                found.setdefault(int(row["step"]) + 1, []).append(counting)
    return [counts for step, counts in found.items() if len(counts) > 1 and len(counts) == backwards.get(step)]


def _backwards(optimization: Optimization) -> dict[int, float]:
    steps = timing.numbers(optimization).astype(int)
    return dict(zip(steps.tolist(), optimization.steps["backwards"].tolist(), strict=True))
