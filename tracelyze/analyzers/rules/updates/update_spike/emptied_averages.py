"""Averages of an optimizer that were emptied although its count of steps went on: Adam then corrects nothing.

Adam's averages begin at zero, so it divides each by the weight that its terms have so far, which it knows from its
count of steps. An average of squares falls by no more than its decay allows in so many steps, whatever the gradients
are: where it has fallen further, something else has set it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze import reading
from tracelyze.analyzers.evidence import timing

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.analyzers.rule import Limits

_BEFORE: Final = 16  # measurements that show what is usual: two hundred elements in each
_FEWEST: Final = 8  # of them
_FAR: Final = 0.5  # of what the decay leaves at least: rounding to 8 bits is far from that
_SAME_RATE: Final = 1.5  # times the rate before: one that is raised by more is another cause
_LOSSES: Final = 40  # on each side: what they average, single batches aside
_FEWEST_LOSSES: Final = 16  # a median of fewer is that of chance


@dataclass(frozen=True)
class Emptied:
    """One time at which it happened."""

    after: int
    """The last step that was seen before it."""
    step: int
    """The first that was seen behind it."""
    usual: float
    """The update over the rate, in the median of the measurements before."""
    size: float
    """The largest of those behind it."""
    gradient: float
    """The gradient at `step`, over its median before."""
    fell: float
    """The root of the average of squares at `step`, over that at `after`."""
    counted: float
    """What the optimizer had counted at `step`."""
    losses: tuple[float, float] | None
    """Medians before and behind it; None where too few are known."""

    @property
    def times(self) -> float:
        """How many times as large as usual the updates became."""
        return self.size / self.usual

    @property
    def harm(self) -> float:
        """How many times as high as before the loss is behind it; 0 where that is not known."""
        return self.losses[1] / self.losses[0] if self.losses is not None and self.losses[0] > 0 else 0.0


def decays(optimization: Optimization) -> tuple[float, float] | None:
    """How much its averages of gradients and of their squares keep at each step; None where it does not say."""
    text, others = optimization.facts.get("options"), str(optimization.facts.get("other_options") or "")
    if '"betas"' in others:  # of which group a sampled tensor is, is not recorded
        return None
    betas = reading.parse_object(str(text)).get("betas") if text else None
    if not isinstance(betas, list) or len(betas) != 2 or not all(isinstance(one, int | float) for one in betas):
        return None
    first, second = (float(one) for one in betas)
    return (first, second) if 0 <= first < 1 and 0 < second < 1 else None


def measured(optimization: Optimization) -> int:
    """How many of its updates were measured of which it is known how many steps it had counted."""
    table = optimization.process.tables["updates"]
    return int(((table["optimizer"] == optimization.optimizer) & np.isfinite(table["own_step"])).sum())


def of(optimization: Optimization, limits: Limits) -> list[Emptied]:
    """Every time at which the averages were emptied and updates became `larger` than usual."""
    kept = decays(optimization)
    if kept is None:
        return []
    table = optimization.process.tables["updates"]
    own = table["optimizer"] == optimization.optimizer
    found: list[Emptied] = []
    for sample in np.unique(table["sample"][own]):
        rows = np.flatnonzero(own & (table["sample"] == sample) & np.isfinite(table["size"]))
        rows = rows[np.argsort(table["step"][rows], kind="stable")]
        names = ("step", "size", "gradient", "second", "own_step")
        found += _in_sample(optimization, [table[name][rows] for name in names], kept, limits)
    return sorted(found, key=lambda one: one.step)


def _in_sample(
    optimization: Optimization, columns: list[Floats], kept: tuple[float, float], limits: Limits
) -> list[Emptied]:
    steps, raw, gradient, second, counted = columns
    first, squares = kept
    with np.errstate(all="ignore"):
        sizes = raw * np.sqrt(1 - squares**counted) / (1 - first**counted)
        apart = np.diff(steps, prepend=steps[:1])
        least = np.concatenate([[0.0], second[:-1] ** 2]) * squares**apart
        went_on = np.diff(counted, prepend=np.nan) == apart
    fell = (apart > 0) & went_on & (second**2 < _FAR * least)
    found = []
    for row in np.flatnonzero(fell).tolist():
        before = slice(max(0, row - _BEFORE), row)
        behind = sizes[row : row + _FEWEST]
        if row < _FEWEST or not np.isfinite([*sizes[before], *behind, *gradient[before], gradient[row]]).all():
            continue
        usual, size = float(np.median(sizes[before])), float(behind.max())
        level = float(np.median(gradient[before]))
        if (
            min(usual, level) <= 0
            or size < max(limits["larger"], gradient[row] / level) * usual
            or _rate_rose(optimization, steps[row - 1], steps[row])
        ):
            continue
        found.append(
            Emptied(
                after=int(steps[row - 1]),
                step=int(steps[row]),
                usual=usual,
                size=size,
                gradient=float(gradient[row]) / level,
                fell=float(second[row] / second[row - 1]),
                counted=float(counted[row]),
                losses=_losses(optimization, int(steps[row - 1]), int(steps[row])),
            )
        )
    return found


def _rate_rose(optimization: Optimization, after: float, step: float) -> bool:
    """Whether the rate is another, higher one behind it."""
    numbers, rate = timing.numbers(optimization), optimization.steps["lr"]
    before, behind = rate[numbers == after], rate[numbers == step]
    return bool(len(before) and len(behind) and behind[0] > _SAME_RATE * before[0])


def _losses(optimization: Optimization, after: int, step: int) -> tuple[float, float] | None:
    """Medians of the losses before it, and behind the first update that it changed: that one's is still as before."""
    numbers, loss = timing.numbers(optimization), optimization.steps["loss"]
    before = loss[(numbers > after - _LOSSES) & (numbers <= after)]
    behind = loss[(numbers > step) & (numbers <= step + _LOSSES)]
    before, behind = before[np.isfinite(before)], behind[np.isfinite(behind)]
    if min(len(before), len(behind)) < _FEWEST_LOSSES:
        return None
    return float(np.median(before)), float(np.median(behind))
