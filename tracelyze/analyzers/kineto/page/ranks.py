"""All ranks on one clock around the collective that the late rank holds up most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution.collectives import Arrivals
from tracelyze.analyzers.kineto.page.decimation import UNITS, Slices, lane
from tracelyze.analyzers.kineto.timeline.table import Floats
from tracelyze.diagnosis import KINDS, Lane, Timeline
from tracelyze.formatting import duration, plural

MOST_RANKS: Final = 16
"""Lanes: the late rank and those that wait for it longest."""

AROUND: Final = 0.75
"""How much is shown before and behind the collective, as a share of the time from its first arrival to its end."""

_MICROSECONDS: Final = 1e6
_KIND: Final = {name: index for index, name in enumerate(KINDS)}
_WAITS, _TALKS = 0, 1  # the names of the timeline


def around_the_late(arrivals: Sequence[Arrivals], late: int) -> Timeline | None:
    """What each rank did around the collective that waited longest for rank `late`; None if none waited for it.

    A collective is drawn in two parts: until the last rank arrives it waits, then it communicates.
    """
    found = [(float(delay), one, row) for one in arrivals for delay, row in _held_up(one, late)]
    if not found:
        return None
    delay, chosen, row = max(found, key=lambda candidate: candidate[0])
    first, end = float(np.nanmin(chosen.start[row])), float(np.nanmax(chosen.end[row]))
    margin = AROUND * (end - first)
    begin, stop = first - margin, end + margin
    kind = chosen.kinds[row].split(" ")[0]
    ranks = _shown(chosen, row, late)
    lanes = [_lane(chosen, chosen.ranks.index(rank), rank == late, begin, stop) for rank in ranks]
    left_out = len(chosen.ranks) - len(ranks)
    notes = [f"All ranks on one clock, around the collective ({kind}) that waited longest for rank {late}."]
    notes += ["Their clocks differed and were put right by the ends of the collectives."] if chosen.realigned else []
    notes += [f"Not drawn: {plural(left_out, 'rank')} that waited less."] if left_out else []
    return Timeline(
        title=f"Rank {late} arrives {duration(delay / _MICROSECONDS)} after the median of the others",
        note=" ".join(notes),
        length_us=round(stop - begin, 1),
        unit_us=round((stop - begin) / UNITS, 3),
        names=["waits for the last rank", "communicates"],
        lanes=[one for one in lanes if one is not None],
    )


def _held_up(arrivals: Arrivals, late: int) -> list[tuple[float, int]]:
    """Delay and row of each collective at which this rank arrives last."""
    if not arrivals.trusted or late not in arrivals.ranks:
        return []
    rows = np.flatnonzero((arrivals.last() == arrivals.ranks.index(late)) & ~arrivals.between_two())
    return list(zip(arrivals.delay()[rows].tolist(), rows.tolist(), strict=True))


def _shown(arrivals: Arrivals, row: int, late: int) -> list[int]:
    """The late rank, and the ranks that wait longest in this collective, in the order of their numbers."""
    waits = arrivals.waits()[row]
    order = np.argsort(-np.nan_to_num(waits, nan=-1.0), kind="stable")
    others = [arrivals.ranks[place] for place in order.tolist() if arrivals.ranks[place] != late]
    return sorted([late, *others[: MOST_RANKS - 1]])


def _lane(arrivals: Arrivals, place: int, is_late: bool, begin: float, stop: float) -> Lane | None:
    start, end = arrivals.start[:, place], arrivals.end[:, place]
    known = np.flatnonzero(np.isfinite(start) & (end > begin) & (start < stop))
    arrived: Floats = np.minimum(np.nanmax(arrivals.start[known], axis=1), end[known])
    begins = np.concatenate([start[known], arrived])
    ends = np.concatenate([arrived, end[known]])
    label = np.repeat([_WAITS, _TALKS], len(known))
    kind = np.repeat([_KIND["sync"], _KIND["communication"]], len(known))
    lasting = np.flatnonzero(ends > begins)
    order = lasting[np.argsort(begins[lasting], kind="stable")]
    slices = Slices(begins[order], ends[order], label[order], kind[order], np.zeros(len(order), dtype=np.int64))
    rank = arrivals.ranks[place]
    return lane(f"rank {rank}, the last to arrive" if is_late else f"rank {rank}", slices, begin, stop)
