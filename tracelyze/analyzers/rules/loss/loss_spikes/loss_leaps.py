"""Leaps of a loss that last: set apart from outliers by a running median, from noise by the spread before them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.signatures import evaluated_losses
from tracelyze.analyzers.statistics import Excursion

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.analyzers.rule import Limits
    from tracelyze.analyzers.signatures.evaluated_losses import Evaluated, Leaps

_USUAL = 32  # losses before a leap that show what is usual
_LONG = 4 * _USUAL  # losses from which on a leap that fills much of the run is another level
_BLURRED = 2  # losses by which a median of five puts the begin of a leap too early or too late
_FIRST = 0.1  # share of the run in which a training settles
_CHANCE = 0.01  # so often may high batches that come by themselves gather to one such leap in the whole run


def of_steps(losses: Floats, limits: Limits) -> list[Excursion]:
    """Leaps of the training loss (shape [losses]) by `factor` and `sigmas`, of `width` losses at least, in order.

    Those of the first tenth are left out, and those that stay far below its losses: a fit without noise bumps about
    down there, and those that are single batches which happen to come close together. So is everything if leaps fill
    more than `share` of the run: they, and all that come half as high.
    """
    if len(losses) < 2 * _USUAL or losses.min() <= 0:
        return []
    width = int(limits["width"])
    calm = statistics.running_median(losses, width)
    settled = max(int(_FIRST * len(losses)), 3)
    leaps = statistics.excursions(calm, factor=limits["factor"])
    least = limits["matters"] * statistics.median(losses[:settled])
    lasting = [leap for leap in leaps if leap.begin >= settled and leap.peak >= least]
    found = [leap for leap in lasting if _beyond(leap, losses, width, limits["sigmas"])]
    found = [replace(leap, begin=_jump(leap, losses)) for leap in _more_than_chance(found, losses, settled)]
    half = min((np.sqrt(leap.base * leap.peak) for leap in found), default=0.0)
    inside = sum(leap.end - leap.begin for leap in leaps if leap.peak >= half)
    return [] if inside > limits["share"] * len(losses) and len(losses) >= _LONG else found


def _beyond(leap: Excursion, losses: Floats, width: int, sigmas: float) -> bool:
    """Whether a leap lasts, and is far beyond how the losses before it moved, from one to the next and over four."""
    usual = np.log(losses[max(0, leap.begin - width - _USUAL) : max(1, leap.begin - width)])
    if leap.end - leap.begin < width or len(usual) < 2 * width:
        return False
    noise = max(statistics.spread(usual[lag:] - usual[:-lag]) for lag in (1, 4)) / np.sqrt(2)
    return bool(np.log(leap.peak / leap.base) > sigmas * noise)


def _more_than_chance(found: list[Excursion], losses: Floats, settled: int) -> list[Excursion]:
    """Those of the leaps with more high losses than the share of such losses in the rest of the run explains.

    Every tenth batch may hold a broken sample, wherever it comes: three of five in a row do, too, sometimes. Judged by
    Chernoff's bound on that many among so many.
    """
    rest = np.ones(len(losses), dtype=bool)
    rest[:settled] = False
    for leap in found:
        rest[leap.begin : leap.end] = False
    others = losses[rest]
    lasting = []
    for leap in found:
        half = np.sqrt(leap.base * leap.peak)
        usual = float((others > half).mean()) if len(others) else 0.0
        inside = float((losses[leap.begin : leap.end] > half).mean())
        if usual == 0 or _above(inside, usual) * (leap.end - leap.begin) > np.log(len(losses) / _CHANCE):
            lasting.append(leap)
    return lasting


def _above(share: float, usual: float) -> float:
    """How far a share is above the usual one: the relative entropy of the two, in nats; 0 for one that is not."""
    if share <= usual:
        return 0.0
    rest = (1 - share) * np.log((1 - share) / (1 - usual)) if share < 1 else 0.0
    return float(share * np.log(share / usual) + rest)


def _jump(leap: Excursion, losses: Floats) -> int:
    """Where the loss jumped, if a single step made half of the leap; else where it left its level, by its median."""
    near = np.arange(max(1, leap.begin - _BLURRED), min(len(losses), leap.end))
    jump = int(near[np.argmax(losses[near] - losses[near - 1])])
    return jump if losses[jump] - losses[jump - 1] >= (leap.peak - leap.base) / 2 else leap.begin


def of_evaluations(curves: Evaluated, limits: Limits) -> Leaps | None:
    """Leaps of both evaluated splits that cost much: several, one that lasted long, or one not regained."""
    seen = evaluated_losses.leaps(
        curves, factor=limits["evaluated"], together=limits["together"], regained=limits["regained"]
    )
    costly = len(seen.found) >= limits["spikes"] or seen.share >= limits["long"] or seen.lost
    return seen if seen.found and costly else None
