"""Gradient norms far above those around them, and what is usual beside them, however often norms were looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Passed, Skipped
from tracelyze.analyzers.signatures.spikes import lone_spikes
from tracelyze.formatting import plural

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats, Mask
    from tracelyze.analyzers.rule import Limits

    Rows = npt.NDArray[np.int64]

_AROUND: Final = 33  # losses whose median is the level of the one in the middle: as for single batches
_QUIET: Final = 2.0  # times the level: batches of one size and kind do not double it
_LEVEL: Final = 16  # norms beside quiet losses that show what is usual, as for losses before a spike
_AFTER, _BACK = 4, 2  # steps behind a spike, and how many of them are quiet: three hard batches in five are no chance


class Spikes(NamedTuple):
    """`found`: places of the spikes among the rows; `usual`: the norm of all other steps."""

    found: list[int]
    usual: float


def of_norms(optimization: Optimization, reached: Floats, rows: Rows, limits: Limits) -> Spikes | Passed | Skipped:
    """Which of these rows of the steps are spikes; or why none are told.

    `reached`: the norms that reached the weights, shape [steps].
    """
    norm, at_first = reached[rows], reached[: len(reached) // 10]
    if len(norm) < limits["norms"]:
        return Skipped(
            f"{plural(len(norm), 'norm')} known after the first tenth of the run; {limits['norms']:.0f} are needed"
        )
    few = len(norm) < limits["few"]  # a shorter window knows less of what is usual: wider limits
    window, factor = (int(limits["norms"]) // 2, 2 * limits["factor"]) if few else (64, limits["factor"])
    found = statistics.spikes(norm, window=window, sigmas=limits["sigmas"], factor=factor)
    # Norms are looked at more often where something is out of the ordinary: what is rare is judged by all steps.
    count = int(settled(optimization).sum())
    usual_number = limits["spikes"] <= len(found) <= limits["share"] * count
    if not usual_number and few:  # of so few steps three are more than that share already
        found = lone_spikes.isolated(norm, rows, factor=factor, sigmas=limits["sigmas"])
        usual_number = limits["spikes"] <= len(found) <= max(limits["spikes"], limits["often"] * count)
    if not usual_number:
        lone = lone_spikes.towering(norm, rows, height=limits["height"], gap=limits["gap"], sigmas=limits["sigmas"])
        if not limits["pair"] <= len(lone) <= max(limits["spikes"], limits["often"] * count):
            beside = beside_losses(optimization.steps["loss"], reached, rows, count, limits)
            return beside or Passed(f"{plural(len(found), 'spike')} among {len(norm):,} gradient norms")
        found = lone
    levels = [norm[: found[0]], at_first[np.isfinite(at_first)]]
    highest = [statistics.running_median(before, int(limits["level"])).max() for before in levels if len(before)]
    if (
        few
        and norm.min() > 0
        and _is_tail(np.log(norm / statistics.running_median(norm, _AROUND)), np.log(factor), len(found))
    ):
        return Passed(f"{plural(len(found), 'spike')}, the far end of norms that often leap")
    if highest and np.median(norm[found]) <= max(highest):
        return Passed(f"{plural(len(found), 'spike')}, none far above norms that were usual earlier in the training")
    return Spikes(found, statistics.median(norm))


def settled(optimization: Optimization) -> Mask:
    """Steps that trained, without the first tenth of the run, in which norms settle. Shape [steps]."""
    usable = timing.trained_steps(optimization)
    usable[: len(usable) // 10] = False
    return usable


def _is_tail(over: Floats, border: float, spikes: int) -> bool:
    """Whether so many spikes beyond a border are the end of a tail, which thins out on its way up: above the border's
    half lie more values that are no spikes. `over`: logarithms of values over what is usual around them."""
    return int((over > border / 2).sum()) - spikes > spikes


def beside_losses(losses: Floats, reached: Floats, rows: Rows, count: int, limits: Limits) -> Spikes | None:
    """Norms of these `rows` of the steps that leap together with the loss of a single batch.

    Norms that are looked at where the loss leaps are spikes for the most part, and their own median is one. Losses are
    known of all steps: the norms beside those that are quiet tell what is usual, and the highest of them how far that
    reaches. `losses`, `reached`: shape [steps]. `count`: of the steps that can have spikes.
    """
    if len(losses) < _AROUND or not np.isfinite(losses).all() or losses.min() <= 0:
        return None
    if not lone_spikes.any_towers(losses, limits["factor"]):
        return None  # as in most runs, before what costs time
    over = np.log(losses / statistics.running_median(losses, _AROUND))
    border = max(float(np.log(limits["factor"])), limits["sigmas"] * statistics.spread(over))
    norm, quiet = reached[rows], reached[np.isfinite(reached) & (over < np.log(_QUIET))]  # also those at first
    if _is_tail(over, border, int((over > border).sum())) or len(quiet) < _LEVEL or quiet.min() <= 0:
        return None
    logs = np.log(quiet)
    far = norm > max(
        limits["factor"] * quiet.max(), np.exp(np.median(logs) + limits["sigmas"] * statistics.spread(logs))
    )
    found = np.flatnonzero(far & (over[rows] > border))
    if not limits["spikes"] <= len(found) <= limits["often"] * count:
        return None
    after = [over[row + 1 : row + 1 + _AFTER] for row in rows[found]]
    if any(len(one) == _AFTER and (one < np.log(_QUIET)).sum() < _BACK for one in after):
        return None  # what stays is another level
    late = reached[rows[over[rows] < np.log(_QUIET)]]
    return Spikes(found.tolist(), statistics.median(late if len(late) else quiet))
