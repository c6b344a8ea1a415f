"""Samples that a data set holds several times over, each about as often as the others: copies made on purpose.

Where few different samples can be drawn, some are drawn often and many once: how often follows a Poisson distribution,
or spreads more. Copies are there two, three or five times, and hardly any once. Only where both sides of a split were
looked at as a whole is it known how often each sample is there.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

DIFFERENT: Final = 200  # samples: a grid of fewer is more often a world with few states
OFTEN: Final = (1.5, 8.0)  # times that a sample is there: of more copies, few would be there once by chance either


def evenness(samples: Sequence[str]) -> float:
    """By how many standard deviations the counts of samples spread less than those of samples that are drawn by chance;
    0 where that is not known. `samples`: the contents of both sides, with repetitions."""
    counts = np.array(list(Counter(samples).values()), dtype=float)
    if len(counts) < DIFFERENT or not OFTEN[0] <= counts.mean() <= OFTEN[1]:
        return 0.0
    return max(0.0, 1.0 - float(counts.var()) / _spread_by_chance(float(counts.mean()))) / math.sqrt(2 / len(counts))


def _spread_by_chance(mean: float) -> float:
    """The variance of a Poisson distribution without its zeros, which are not seen, of this mean."""
    rate = mean
    for _ in range(50):
        rate = mean * -math.expm1(-rate)
    return mean * (1.0 + rate - mean)
