"""Which rank the others wait for: the same collectives on all ranks, matched, and who arrives last.

A collective ends on all its ranks together, when the last one has arrived: so the rank that is waited for has the
shortest kernels, and the ends show how far apart the clocks of two ranks are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution.kernels import SEND_RECEIVE
from tracelyze.analyzers.kineto.timeline.table import Floats, Integers, Mask, distinct, median

END_SPREAD: Final = 0.1
"""Ends further apart than this share of the longest kernel mean clocks that differ: a collective ends together
(measured on eight ranks with a common clock: 1 to 7 us on kernels of 0.5 to 7.6 ms)."""

MOST_KEYS: Final = 2000
"""Most pairs of process group and kind of collective that are matched."""

MOST_MOVES: Final = 1_000_000
"""Most pairs of ends that are compared to lay the collectives of two ranks against each other."""

ALIGNED: Final = 0.9
"""Share of the collectives of two ranks that end together where windows began or ended apart: a rank that misses one in
the middle agrees with the others on one side of it only."""

_MOST: Final = 0.5
"""Share of the collectives: enough to leave an order as it is that has the same number on both ranks."""

_FEWEST_STEPS: Final = 3
"""Steps in which a rank was late: of one or two, the evenness of the delay says nothing."""

LEAST_END_SPREAD: Final = 50.0
"""Microseconds of end spread that say nothing about clocks, whatever the length of the kernels."""


@dataclass(frozen=True)
class CollectiveTimes:
    """The communication kernels of one rank, in order of start: times in microseconds on the clock of the files' base.

    `key`: index into `keys`, each the process group and the kind of collective. `step`: index of the rank's step in
    which the kernel starts, -1 outside of all. Shapes [kernels].
    """

    keys: list[str]
    key: Integers
    start: Floats
    end: Floats
    step: Integers


@dataclass(frozen=True)
class Arrivals:
    """Matched collectives over `ranks`: `start` and `end` with clocks put right, `step`; shapes [collectives, ranks].

    Rows are in order of time; NaN where a rank does not belong to the collective. `realigned`: the clocks differed,
    and were put right by the ends. `trusted`: most collectives end together, as they must. `unmatched`: collectives
    that not all ranks made equally often, for people.
    """

    ranks: list[int]
    start: Floats
    end: Floats
    step: Integers
    kinds: list[str]
    realigned: bool
    trusted: bool
    unmatched: list[str]

    def waits(self) -> Floats:
        """How long each rank waits in each collective for the last one to arrive, shape [collectives, ranks]."""
        return np.asarray(np.nanmax(self.start, axis=1, keepdims=True) - self.start)

    def last(self) -> Integers:
        """Which of `ranks` arrives last, as an index, shape [collectives]."""
        return np.asarray(np.nanargmax(self.start, axis=1))

    def between_two(self) -> Mask:
        """What one rank sends to another, shape [collectives]: stages of a pipeline wait for those beside them, as
        pipelines do.
        """
        sent = np.array([kind.startswith(SEND_RECEIVE) for kind in self.kinds], dtype=bool)
        return np.asarray(sent & (np.isfinite(self.start).sum(axis=1) == 2))

    def delay(self) -> Floats:
        """How much later the last rank arrives than the middle one of the others, shape [collectives]."""
        others = self.start.copy()
        others[np.arange(len(others)), self.last()] = np.nan
        return np.asarray(np.nanmax(self.start, axis=1) - np.nanmedian(others, axis=1))


def waits_of(arrivals: Arrivals, rank: int, steps: int) -> Floats | None:
    """How long `rank` waits for the last rank in each of its `steps` steps, microseconds, shape [steps].

    None where the clocks do not allow it. Steps are those of the lowest rank, which are nearly this rank's.
    """
    if not arrivals.trusted or rank not in arrivals.ranks:
        return None
    waits = np.nan_to_num(arrivals.waits()[:, arrivals.ranks.index(rank)])
    inside = (arrivals.step >= 0) & (arrivals.step < steps)
    return np.bincount(arrivals.step[inside], waits[inside], steps).astype(np.float64)


def match(times: Mapping[int, CollectiveTimes]) -> Arrivals | None:
    """The k-th collective of each group and kind on every rank that takes part; None if no two ranks share any."""
    ranks = sorted(times)
    rows: list[tuple[Floats, Floats, int, str]] = []
    unmatched: list[str] = []
    for key in sorted({key for one in times.values() for key in one.keys})[:MOST_KEYS]:
        members = [index for index, rank in enumerate(ranks) if key in times[rank].keys]
        if len(members) < 2:
            continue
        places = {index: _of_key(times[ranks[index]], key) for index in members}
        counts = [len(one) for one in places.values()]
        chosen = _aligned({index: (times[ranks[index]], own) for index, own in places.items()})
        if not chosen:
            # A stage in the middle of a pipeline sends and receives more than the first and the last.
            if not key.startswith(SEND_RECEIVE):
                unmatched.append(f"{key} ({min(counts)} to {max(counts)} times)")
            continue
        for place in range(len(chosen[members[0]])):
            start, end = np.full(len(ranks), np.nan), np.full(len(ranks), np.nan)
            for index, own in chosen.items():
                start[index] = times[ranks[index]].start[own[place]]
                end[index] = times[ranks[index]].end[own[place]]
            first = times[ranks[members[0]]]
            rows.append((start, end, int(first.step[chosen[members[0]][place]]), key))
    if not rows:
        nothing = np.zeros((0, len(ranks)))
        empty = Arrivals(ranks, nothing, nothing, np.zeros(0, np.int64), [], False, False, unmatched)
        return empty if unmatched else None
    rows.sort(key=lambda row: float(np.nanmin(row[1])))
    start, end = np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])
    shift = np.zeros(len(ranks)) if _end_together(start, end) else _clock_shifts(end)
    start, end = start - shift, end - shift
    step = np.array([row[2] for row in rows], dtype=np.int64)
    kinds = [row[3] for row in rows]
    return Arrivals(ranks, start, end, step, kinds, bool(shift.any()), _end_together(start, end), unmatched)


@dataclass(frozen=True)
class Blame:
    """Who the collectives wait for. `delay`: by rank, microseconds that they wait for it beyond the others' middle.

    `lags`: by rank, how late it is in each step against the others' middle, negative where it is early. `led`: by rank,
    in how many steps it delays most; in how many collectives it is last if there are fewer than three steps. `trials`:
    how many steps, or collectives, that is of.
    """

    delay: dict[int, float]
    lags: dict[int, list[float]]
    led: dict[int, int]
    trials: int

    def chance(self, rank: int) -> float:
        """How likely some rank leads as often as this one if all are equally likely to, times the number of ranks."""
        ranks = len(self.delay)
        more = range(self.led[rank], self.trials + 1)
        tail = sum(math.comb(self.trials, k) * (1 / ranks) ** k * (1 - 1 / ranks) ** (self.trials - k) for k in more)
        return min(1.0, ranks * tail)

    def unevenness(self, rank: int) -> float:
        """Spread of the rank's lateness over the steps as a share of its mean; infinite for fewer than three steps."""
        lags = np.array(self.lags[rank])
        if len(lags) < _FEWEST_STEPS or lags.mean() <= 0:
            return math.inf
        return float(lags.std(ddof=1) / lags.mean())


def blame(windows: Sequence[Arrivals]) -> Blame:
    """Sums up who is waited for, over all windows of a job."""
    ranks = sorted({rank for arrivals in windows for rank in arrivals.ranks})
    delay = dict.fromkeys(ranks, 0.0)
    lags: dict[int, list[float]] = {rank: [] for rank in ranks}
    leaders: list[int] = []
    lasts: list[int] = []
    for arrivals in windows:
        last, late, judged = arrivals.last(), arrivals.delay(), ~arrivals.between_two()
        for step in distinct(arrivals.step[judged & (arrivals.step >= 0)]):
            own = dict.fromkeys(arrivals.ranks, 0.0)
            chosen = np.flatnonzero(judged & (arrivals.step == step))
            for index in chosen:
                own[arrivals.ranks[int(last[index])]] += float(late[index])
            lasts += [arrivals.ranks[int(last[index])] for index in chosen]
            leaders.append(max(own, key=lambda rank: own[rank]))
            for place, rank in enumerate(arrivals.ranks):
                delay[rank] += own[rank]
                others = np.delete(arrivals.start[chosen], place, axis=1)
                lags[rank].append(float(np.nansum(arrivals.start[chosen, place] - np.nanmedian(others, axis=1))))
    counted = leaders if len(leaders) >= _FEWEST_STEPS else lasts
    return Blame(delay, lags, {rank: counted.count(rank) for rank in ranks}, len(counted))


def _of_key(times: CollectiveTimes, key: str) -> Integers:
    return np.flatnonzero(times.key == times.keys.index(key))


def _aligned(places: Mapping[int, tuple[CollectiveTimes, Integers]]) -> dict[int, Integers]:
    """For each member, which of its collectives are held by all members, in the same order; empty where that is not
    known.

    As a rule that is all of them. Windows that began or ended apart hold different ones: then they are laid against
    those of the first member so that they end together.
    """
    (base, own), *others = places.values()
    moves = [_move((base, own), other) for other in others]
    known = [move for move in moves if move is not None]
    if len(known) < len(moves):
        return {}
    shift = dict(zip(places, [0, *known], strict=True))
    first = max(shift.values())
    last = min(len(one) + shift[index] for index, (_, one) in places.items())
    return {
        index: one[first - shift[index] : last - shift[index]] for index, (_, one) in places.items() if last > first
    }


def _move(first: tuple[CollectiveTimes, Integers], second: tuple[CollectiveTimes, Integers]) -> int | None:
    """By how many places the second rank's collectives come later than the first's; None where that is not known.

    Where clocks agree the ends do. Where they do not, as many on both ranks are taken for the same; else the distance
    of the ends, of all that the shorter window holds, has to vary less with one move than with any other.
    """
    ends, others = first[0].end[first[1]], second[0].end[second[1]]
    lasting = np.concatenate([ends - first[0].start[first[1]], others - second[0].start[second[1]]])
    near = max(LEAST_END_SPREAD, END_SPREAD * median(lasting))
    most = min(max(len(ends), len(others)) // 2, MOST_MOVES // max(len(ends), len(others)))
    moves, alike = sorted(range(-most, most + 1), key=abs), len(ends) == len(others)
    spreads: dict[int, float] = {}
    for move in moves:
        mine, theirs = ends[max(move, 0) : len(others) + move], others[max(-move, 0) : len(ends) - move]
        if 2 * len(mine) < max(len(ends), len(others)):
            continue
        distance = mine - theirs
        if float(np.mean(np.abs(distance) <= near)) >= (_MOST if move == 0 and alike else ALIGNED):
            return move
        if not alike and len(mine) == min(len(ends), len(others)):
            spreads[move] = float(np.quantile(np.abs(distance - median(distance)), ALIGNED))
    if alike:
        return 0
    best = sorted(spreads, key=lambda move: spreads[move])[:2]
    clear = len(best) == 2 and spreads[best[1]] > 2 * spreads[best[0]] + LEAST_END_SPREAD
    return best[0] if clear else None


def _end_together(start: Floats, end: Floats) -> bool:
    """Whether most collectives end on all ranks at the same time."""
    spread = np.nanmax(end, axis=1) - np.nanmin(end, axis=1)
    longest = np.nanmax(end - start, axis=1)
    return float(np.mean(spread <= np.maximum(LEAST_END_SPREAD, END_SPREAD * longest))) >= _MOST


def _clock_shifts(end: Floats) -> Floats:
    """What each rank's clock is ahead of the middle one, from the ends of shared collectives, shape [ranks]."""
    return np.nan_to_num(np.nanmedian(end - np.nanmedian(end, axis=1, keepdims=True), axis=0))
