"""What a repaired clip says: its limit in few digits, its line, and the learning rate that fits it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.schedules import schedulers

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Location

PLAIN: Final = 1000
"""Two digits of a number above it are written out: 120000, not 1.2e+05."""
USUAL: Final = 1e-3
"""Update per weight and step: about a tenth of a percent (update-ratio)."""
TENFOLD: Final = 10
"""The least raise that shows."""
LARGEST: Final = 1e-2
"""A rate for Adam or SGD above it is the exception."""
TENTH: Final = 0.1
"""The usual first try of a lower rate."""
HIGHEST: Final = 1000
"""Steps are made longer by no more at once: what one does then has to be seen first."""


def written(value: float) -> str:
    """Two digits of the value, as code."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:.0f}" if rounded >= PLAIN else f"{rounded:g}"


def place_of(optimization: Optimization) -> Location | None:
    """The only line that clips."""
    places = optimization.process.locations("clip")
    return places[0] if len(places) == 1 else None


def rate_for(optimization: Optimization, factor: float) -> str:
    """The line that gives the rate, with so many times the rate, below a line of an example; empty if not known."""
    rate = float(np.nanmedian(optimization.steps["lr"])) if optimization.steps.known("lr").any() else 0.0
    return f"\n{schedulers.with_rate(optimization, rate * factor)}" if rate > 0 else ""


def higher_limit(optimization: Optimization, way: float) -> str:
    """A clip that makes steps of a usual length of those that went this way in all, or one at the usual norm.

    The rate and the limit act alike, as their product. It is the limit that is far off: a rate that makes up for it is
    absurd as soon as gradients get small enough to pass the clip.
    """
    factor = min(USUAL * len(optimization.steps) / way if way > 0 else HIGHEST, HIGHEST)
    limit = float(np.nanmedian(optimization.steps["clip_max_norm"]))
    higher = min(limit * factor, float(np.nanmedian(optimization.steps["grad_norm"])))
    return f"torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm={written(higher)})"


def with_lower_rate(optimization: Optimization) -> str:
    """A tenth of the rate, below an example that clips: where the optimizer is made."""
    rate = rate_for(optimization, TENTH)
    return f"\n\n# and where the rate is set, a tenth of it:{rate}" if rate else ""


def usual_rate(rate: float, ratio: float) -> float:
    """The rate at which steps are of a usual length, of one at which they change the weights by `ratio` of their size;
    ten times the rate at least, and no more than any optimizer is used with."""
    return min(rate * max(TENFOLD, USUAL / ratio if ratio > 0 else TENFOLD), LARGEST)
