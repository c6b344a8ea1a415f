"""Ranks that had left the same path when they lost each other: they waited for collectives at different lines."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import listed, plural, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracelyze.analyzers.recorded.run import Peer
    from tracelyze.analyzers.signatures.hangs.late_ranks import Rank
    from tracelyze.diagnosis import Location
TIMED_OUT = re.compile(r"timed? ?out", re.IGNORECASE)
KILLED = "asked to terminate (SIGTERM), in "  # by the launcher, while it did not wait for other ranks
PARTED = (
    "A collective ends when all ranks join the same one, so each side waited for the other until the time-out ended "
    "the job. Ranks part like this when one runs out of batches before the others, or takes another branch."
)
CAME_NOT = (
    "A collective ends when all ranks have joined it, so the others waited until their time-out ended the job, and the "
    "launcher then ended the rest."
)
FIX_ELSEWHERE = (
    "Find out why this rank stayed there: a retry without end, a slow disk, a lock. Let it raise an error instead of "
    "trying again, and where the work may take long, choose a time-out of init_process_group that is longer."
)
FIX = (
    "Give all ranks the same number of batches: cut every rank's share to the shortest one (drop_last), or let ranks "
    "end early with torch's Join. Code that only some ranks run must not hold collectives."
)
EXAMPLE = (
    "from torch.distributed.algorithms.join import Join\n\nwith Join([model]):  # model: wrapped in "
    "DistributedDataParallel\n    for batch in loader:\n        ..."
)


@dataclass(frozen=True)
class Parted:
    """`places`: the line at which each rank lost the others; `ended`: ranks that ended normally, with their steps.

    `apart`: the ranks that were not where most were, or where the training loop is. `elsewhere`: of them, where those
    stood that waited for nobody when the launcher ended them, after others had run into their time-out.
    """

    places: dict[int, Location]
    steps: dict[int, int]
    ended: dict[int, int]
    apart: list[int]
    elsewhere: dict[int, Location] = field(default_factory=dict)


def of(peers: Sequence[Peer], ranks: Mapping[int, Rank]) -> Parted | None:
    """Where the ranks of one start of the job were; None if one of them failed by itself, or if all were at one line.

    An exception that says no more than that others are gone, or do not come, shows where its rank waited.
    """
    own_fault = any(peer.death is not None and not peer.death.follows for peer in peers)
    doing = {peer.rank: ranks[peer.rank].doing for peer in peers if peer.rank in ranks}
    lost = [peer for peer in peers if peer.death is not None and peer.death.exit.kind == "exception"]
    places = {peer.rank: seen.location for peer in lost if (seen := doing.get(peer.rank)) and seen.location}
    ended = {
        peer.rank: peer.steps for peer in peers if peer.death is None and (seen := doing.get(peer.rank)) and seen.ended
    }
    steps = {peer.rank: peer.steps for peer in lost}
    if own_fault or not places or any(count > min(steps.values()) for count in ended.values()):
        return None
    lines = Counter((place.file, place.line) for place in places.values())
    elsewhere = {
        peer.rank: seen.location
        for peer in peers
        if peer.death is not None and KILLED in peer.death.exit.detail
        if (seen := doing.get(peer.rank)) and seen.location and seen.location.line not in {line for _, line in lines}
    }
    if elsewhere and any(TIMED_OUT.search(peer.death.exit.detail) for peer in lost if peer.death):
        steps |= {peer.rank: peer.steps for peer in peers if peer.rank in elsewhere}
        return Parted(places, steps, {}, sorted(elsewhere), elsewhere)
    if len(lines) < 2 and not ended:
        return None
    in_loop = {(place.file, place.line) for place in places.values() if "backward(" in place.source}
    usual = max(lines, key=lambda line: (lines[line], line in in_loop))
    apart = [rank for rank, place in places.items() if (place.file, place.line) != usual]
    return Parted(places, steps, ended, sorted([*apart, *ended]))


def finding(parted: Parted, rule: str) -> Finding:
    """Which rank was where, and which one was not where the others were."""
    one, several = parted.apart[0], len(parted.apart) > 1
    place = parted.places.get(one)
    rest = [rank for rank in parted.places if rank not in parted.apart]
    waited = parted.places[rest[0]]
    who = f"Rank{'s' if several else ''} {listed(parted.apart, most=8)}"
    did = f"waited in {shortened(place.source, 30)}" if place else "had ended"
    if parted.elsewhere:
        place = parted.elsewhere[one]
        inside = "" if place.function == "<module>" else f"in {shortened(place.function, 20)}() "
        did = f"{'were' if several else 'was'} {inside}at line {place.line}"
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=f"{who} {did} while rank {rest[0]} waited in {shortened(waited.source, 30)}",
        summary=(
            f"{' '.join(_sentence(parted, rank) for rank in sorted(parted.steps | parted.ended)[:6])} "
            + (CAME_NOT if parted.elsewhere else PARTED)
        ),
        fix=FIX_ELSEWHERE if parted.elsewhere else FIX,
        fix_code="" if parted.elsewhere else EXAMPLE,
        ranks=parted.apart,
        first_step=min(parted.steps.values()),
        evidence=[
            Evidence(f"rank {rank}", _sentence(parted, rank).removeprefix(f"Rank {rank} ").rstrip("."))
            for rank in sorted(parted.steps | parted.ended)[:16]
        ],
        location=place or waited,
        seen_at=waited if place else None,
        false_alarm="A rank that could not reach the others for another reason, such as a network that failed.",
    )


def _sentence(parted: Parted, rank: int) -> str:
    place = parted.places.get(rank)
    if (there := parted.elsewhere.get(rank)) is not None:
        inside = "" if there.function == "<module>" else f"in {there.function}() "
        return f"Rank {rank} was {inside}at line {there.line} after {plural(parted.steps[rank], 'step')}."
    if place is None:
        return f"Rank {rank} ended normally after {plural(parted.ended[rank], 'step')}."
    return f"Rank {rank} waited at line {place.line}, `{place.source}`, after {plural(parted.steps[rank], 'step')}."
