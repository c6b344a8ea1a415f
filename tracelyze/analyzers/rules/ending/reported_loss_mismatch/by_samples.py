"""A logged loss that is the mean one times the samples of a batch, or divided by them: how that comes about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization


class BySamples(NamedTuple):
    """A sentence for the summary, what to do, and an example."""

    said: str
    fix: str
    code: str


_DIVIDED: Final = BySamples(
    " A batch has {samples} samples: such values come about where means of batches are added, and the sum is divided "
    "by the number of samples.",
    "Add the mean of each batch times its samples, or divide by the number of batches. A meter that counts samples "
    "adds `value * n`.",
    "total += loss.item() * samples  # where the sum is made; in a meter's update(): self.sum += value * n",
)
_MULTIPLIED: Final = BySamples(
    " A batch has {samples} samples: such values come about where sums over batches are added, and the sum is divided "
    "by the number of batches.",
    "Add the mean of each batch, or divide the sum by the number of samples.",
    "mean = total / samples  # samples: of all batches in the sum",
)
_OTHER: Final = BySamples(
    "",
    "Log the mean: divide the sum by as many terms as it has, and weigh terms and divisor alike.",
    "mean = sum(losses) / len(losses)  # what is logged: losses since the value before",
)
_NEAR: Final = 0.02
"""By which the factor may miss the number of samples: a smaller last batch of fifty, which counts in each epoch."""


def of(optimization: Optimization, factor: float) -> BySamples:
    """What to say of values that are so many times the loss, by whether batches are of as many samples."""
    sizes = optimization.steps["batch_size"]
    samples = float(np.nanmedian(sizes)) if np.isfinite(sizes).any() else 0.0
    if samples <= 1:
        return _OTHER
    for one, ratio in ((_DIVIDED, factor * samples), (_MULTIPLIED, factor / samples)):
        if abs(ratio - 1) <= _NEAR:
            return one._replace(said=one.said.format(samples=f"{samples:,.0f}"))
    return _OTHER
