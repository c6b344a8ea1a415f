"""Ranks that had left the same path when they lost each other: they waited for collectives at different lines."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tracelyze.analyzers.recorded import exits
from tracelyze.analyzers.rules.distributed.rank_hang import left_out as left_out_call
from tracelyze.analyzers.rules.distributed.rank_hang.doing import ASKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracelyze.analyzers.recorded.run import Death, Peer
    from tracelyze.analyzers.rule import Limits
    from tracelyze.analyzers.rules.distributed.rank_hang.doing import Did
    from tracelyze.analyzers.rules.distributed.rank_hang.late_ranks import Call, Rank
    from tracelyze.analyzers.rules.distributed.rank_hang.standing import Standing
    from tracelyze.diagnosis import Location
TIMED_OUT = re.compile(r"timed? ?out", re.IGNORECASE)


@dataclass(frozen=True)
class Parted:
    """`places`: the line at which each rank lost the others; `ended`: ranks that ended normally, with their steps.

    `apart`: the ranks that were not where most were, or where the training loop is. `elsewhere`: of them, where those
    stood that waited for nobody when the launcher ended them, after others had run into their time-out. `stood`: for
    how many seconds all ranks were seen in their places, in a job that was ended from outside.
    """

    places: dict[int, Location]
    steps: dict[int, int]
    ended: dict[int, int]
    apart: list[int]
    elsewhere: dict[int, Location] = field(default_factory=dict)
    aborted: list[int] = field(default_factory=list)
    left_out: dict[int, Call] = field(default_factory=dict)
    asked: dict[int, Did] = field(default_factory=dict)
    stood: float = 0.0


def of(peers: Sequence[Peer], ranks: Mapping[int, Rank]) -> Parted | None:
    """Where the ranks of one start of the job were; None if one of them failed by itself, or if all were at one line.

    An exception that says no more than that others are gone, or do not come, shows where its rank waited.
    """
    aborted = [peer.rank for peer in peers if peer.death is not None and aborted_waiting(peer.death)]
    if any(peer.death is not None and not peer.death.follows and peer.rank not in aborted for peer in peers):
        return None
    doing = {rank: one.doing for rank, one in ranks.items() if one.doing is not None}
    seen_at = {rank: one.location for rank, one in doing.items() if one.location is not None}
    lost = [peer for peer in peers if peer.death is not None and _lost_others(peer.death, bool(aborted))]
    places = _with_sources({peer.rank: seen_at[peer.rank] for peer in lost if peer.rank in seen_at})
    normal = [peer for peer in peers if peer.death is None and peer.rank in doing and doing[peer.rank].ended]
    ended = {peer.rank: peer.steps for peer in normal}
    steps = {peer.rank: peer.steps for peer in lost}
    if not places or any(count > min(steps.values()) for count in ended.values()):
        return None
    elsewhere = _elsewhere(peers, seen_at, places)
    if elsewhere and any(TIMED_OUT.search(peer.death.exit.detail) for peer in lost if peer.death):
        steps |= {peer.rank: peer.steps for peer in peers if peer.rank in elsewhere}
        asked = {rank: did for rank in elsewhere if (did := doing[rank].did) is not None and did in ASKING}
        return Parted(places, steps, {}, sorted(elsewhere), elsewhere, asked=asked)
    several_lines = len({place.file_line for place in places.values()}) > 1
    if not several_lines and not ended:
        return None
    left_out = {rank: call for rank in places if (call := left_out_call.of(ranks[rank])) is not None}
    apart = _apart(places)
    if left_out and several_lines and len({places[rank].file_line for rank in left_out}) == 1:
        apart = sorted(left_out)
    elif aborted and not ended and _sides_are_even(places):
        apart = sorted(places)  # nothing shows which side left the path
    return Parted(places, steps, ended, sorted([*apart, *ended]), aborted=aborted, left_out=left_out)


def _lost_others(death: Death, aborted: bool) -> bool:
    """Whether a rank ended since others did not come. `aborted`: some ranks of the job were, while they waited."""
    return death.exit.kind == "exception" or (aborted and exits.waited(death.exit.detail))


def _elsewhere(
    peers: Sequence[Peer], seen_at: Mapping[int, Location], places: Mapping[int, Location]
) -> dict[int, Location]:
    """Where ranks stood that waited for nobody when the launcher ended them, at none of the lines of the others."""
    lines = {place.line for place in places.values()}
    ended = [peer.rank for peer in peers if peer.death is not None and _ended_elsewhere(peer.death.exit.detail)]
    return {rank: seen_at[rank] for rank in ended if rank in seen_at and seen_at[rank].line not in lines}


def _sides_are_even(places: Mapping[int, Location]) -> bool:
    """Whether no line has more ranks than every other one."""
    counts = [*Counter(place.file_line for place in places.values()).values()]
    return counts.count(max(counts)) > 1


def standing(peers: Sequence[Peer], ranks: Mapping[int, Rank], limits: Limits) -> dict[int, Standing]:
    """The ranks that stood in a wait for others, for long, when something ended them from outside; or when the wait
    itself did, as in a process of torch.multiprocessing.spawn, which leaves no more than its exit code."""
    failed = any(peer.death and peer.death.exit.kind == "finished" for peer in peers)
    ended = {
        peer.rank
        for peer in peers
        if failed or (peer.death and (peer.death.follows or peer.death.exit.kind == "vanished"))
    }
    stands = {rank: one.stands for rank, one in ranks.items() if rank in ended and one.stands is not None}
    return {
        rank: one
        for rank, one in stands.items()
        if one.looks >= limits["looks"] and one.seconds > limits["times"] * one.longest
    }


def stopped(peers: Sequence[Peer], stands: Mapping[int, Standing]) -> Parted | None:
    """Where the ranks of a job parted that was ended from outside, and all of whose ranks stood still; None if they
    were at one line."""
    if any(peer.rank not in stands for peer in peers):
        return None
    places = {rank: one.place for rank, one in stands.items()}
    apart = _apart(places)
    if not apart:
        return None
    steps = {peer.rank: peer.steps for peer in peers if peer.rank in places}
    return Parted(places, steps, {}, apart, stood=min(one.seconds for one in stands.values()))


def _apart(places: Mapping[int, Location]) -> list[int]:
    """The ranks that were not where most were, or where the training loop is."""
    lines = Counter(place.file_line for place in places.values())
    in_loop = {place.file_line for place in places.values() if "backward(" in place.source}
    usual = max(lines, key=lambda line: (lines[line], line in in_loop), default=None)
    return sorted(rank for rank, place in places.items() if place.file_line != usual)


def _with_sources(places: Mapping[int, Location]) -> dict[int, Location]:
    """The text of a line from another rank, where a signal ended this one and left the number alone."""
    texts = {place.file_line: place.source for place in places.values() if place.source}
    return {
        rank: replace(place, source=place.source or texts.get(place.file_line, "")) for rank, place in places.items()
    }


def aborted_waiting(death: Death) -> bool:
    """Whether a library's thread ended the rank while it waited for others, as Gloo does where sizes do not match."""
    detail = death.exit.detail
    return death.job is not None and detail.startswith(exits.ABORTED) and exits.waited(detail)


def _ended_elsewhere(detail: str) -> bool:
    """Whether the launcher ended the rank while it did not wait for others."""
    return exits.REQUESTED in detail and ", in " in detail and not exits.waited(detail)
