"""Ranks that had left the same path when they lost each other: they waited for collectives at different lines."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.ranks.doing import DEBUGGER, KEYBOARD
from tracelyze.analyzers.recorded import exits
from tracelyze.analyzers.signatures.hangs import decisions, rank_table
from tracelyze.analyzers.signatures.hangs import left_out as left_out_call
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import duration, listed, plural, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracelyze.analyzers.computed.ranks.standing import Standing
    from tracelyze.analyzers.recorded.run import Death, Peer, Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.analyzers.signatures.hangs.late_ranks import Call, Rank
    from tracelyze.diagnosis import Location
TIMED_OUT = re.compile(r"timed? ?out", re.IGNORECASE)
PARTED = (
    "A collective ends when all ranks join the same one, so each side waited for the other until the time-out ended "
    "the job. Ranks diverge like this when one runs out of batches before the others, or takes another branch."
)
STOOD = (
    "They stood there for {seconds} until something ended the job. A collective ends when all ranks join the same "
    "one, so each side waited for the other. Ranks diverge like this when only some of them run the code that "
    "contains the call, or when one runs out of batches before the others."
)
CAME_NOT = (
    "A collective ends when all ranks have joined it, so the others waited until their time-out ended the job, and the "
    "launcher then ended the rest."
)
UNLIKE = (
    "A collective ends when all ranks join the same one. These ranks were in different ones: what arrived was larger "
    "than what {who} waited for, and Gloo ends such a process with an abort, before it has written down its last "
    "steps. Ranks part like this when one runs out of batches before the others, leaves out a call that the others "
    "make, or makes one more."
)
FIX_ELSEWHERE = (
    "Find out why this rank stayed there: an endless retry, a slow disk, a lock. Let it raise an error instead of "
    "retrying; if the work may take long, set a longer time-out in init_process_group."
)
FIX_ASKED = (
    "Take the call out before a job of several ranks starts, or have all ranks wait for it under a time-out that is "
    "long enough: a person answers more slowly than a collective waits."
)
FIX = (
    "Give all ranks the same number of batches: cut every rank's share to the shortest one (drop_last), or let ranks "
    "end early with torch's Join. Where a rank ends by its own decision, as by early stopping, let all decide together."
)
FIX_APART = (
    "Have all ranks decide alike: where an `if`, a `break` or a `continue` hangs on a value of the rank's own (a loss, "
    "a NaN, its number of batches), exchange that value first. Code that only some ranks run must hold no collective."
)
FIX_UNLIKE = (
    "Compare how many batches each rank gets. Where these differ: cut every rank's share to the shortest one "
    "(drop_last, or the least number of all ranks, by all_reduce with ReduceOp.MIN), or let ranks end early with "
    "torch's Join. Otherwise have all ranks decide alike: where an `if`, a `break` or a `continue` hangs on a value of "
    "the rank's own, exchange that value first."
)
TOGETHER = (
    "decision = torch.tensor(float(condition), device=device)  # condition: what this rank alone would go by\n"
    "torch.distributed.all_reduce(decision, op=torch.distributed.ReduceOp.MAX)\n"
    "if decision.item():  # on every rank, or on none\n    ..."
)
FIX_STOOD = (
    "Have every rank make these calls in the same order: code that only some ranks run must hold no collective (a "
    "barrier stands outside of `if rank == 0`). All ranks need the same number of batches, and what one decides by a "
    "loss or a count of its own has to be exchanged first."
)
EXAMPLE = (
    "from torch.distributed.algorithms.join import Join\n\nwith Join([model]):  # model: wrapped in "
    "DistributedDataParallel\n    for batch in loader:\n        ..."
)


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
    asked: dict[int, str] = field(default_factory=dict)
    stood: float = 0.0


def of(peers: Sequence[Peer], ranks: Mapping[int, Rank]) -> Parted | None:
    """Where the ranks of one start of the job were; None if one of them failed by itself, or if all were at one line.

    An exception that says no more than that others are gone, or do not come, shows where its rank waited.
    """
    aborted = [peer.rank for peer in peers if peer.death is not None and aborted_waiting(peer.death)]
    own_fault = any(peer.death is not None and not peer.death.follows and peer.rank not in aborted for peer in peers)
    doing = {peer.rank: ranks[peer.rank].doing for peer in peers if peer.rank in ranks}
    lost = [
        peer
        for peer in peers
        if peer.death is not None
        and (peer.death.exit.kind == "exception" or (aborted and exits.waited(peer.death.exit.detail)))
    ]
    places = _with_sources(
        {peer.rank: seen.location for peer in lost if (seen := doing.get(peer.rank)) and seen.location}
    )
    ended = {
        peer.rank: peer.steps for peer in peers if peer.death is None and (seen := doing.get(peer.rank)) and seen.ended
    }
    steps = {peer.rank: peer.steps for peer in lost}
    if own_fault or not places or any(count > min(steps.values()) for count in ended.values()):
        return None
    lines = Counter(place.file_line for place in places.values())
    elsewhere = {
        peer.rank: seen.location
        for peer in peers
        if peer.death is not None and _ended_elsewhere(peer.death.exit.detail)
        if (seen := doing.get(peer.rank)) and seen.location and seen.location.line not in {line for _, line in lines}
    }
    if elsewhere and any(TIMED_OUT.search(peer.death.exit.detail) for peer in lost if peer.death):
        steps |= {peer.rank: peer.steps for peer in peers if peer.rank in elsewhere}
        said = {rank: seen.what for rank in elsewhere if (seen := doing.get(rank))}
        asked = {rank: how for rank, what in said.items() for how in (DEBUGGER, KEYBOARD) if what.startswith(how)}
        return Parted(places, steps, {}, sorted(elsewhere), elsewhere, asked=asked)
    if len(lines) < 2 and not ended:
        return None
    left_out = {rank: call for rank in places if (call := left_out_call.of(ranks[rank])) is not None}
    apart = _apart(places)
    if left_out and len(lines) > 1 and len({places[rank].file_line for rank in left_out}) == 1:
        apart = sorted(left_out)
    elif aborted and not ended and list(lines.values()).count(max(lines.values())) > 1:
        apart = sorted(places)  # no side is larger, and nothing shows which one left the path
    return Parted(places, steps, ended, sorted([*apart, *ended]), aborted=aborted, left_out=left_out)


def standing(peers: Sequence[Peer], ranks: Mapping[int, Rank], limits: Limits) -> dict[int, Standing]:
    """The ranks that stood in a wait for others, for long, when something ended them from outside."""
    ended = {peer.rank for peer in peers if peer.death and (peer.death.follows or peer.death.exit.kind == "vanished")}
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


def finding(parted: Parted, rule: str, process: Process) -> Finding:
    """Which rank was where, and which one was not where the others were, by the lines that a process recorded."""
    one, several = parted.apart[0], len(parted.apart) > 1
    place = parted.places.get(one)
    rest = [rank for rank in parted.places if rank not in parted.apart] or [parted.apart[-1]]
    waited = parted.places[rest[0]]
    who = f"Rank{'s' if several else ''} {listed(parted.apart, most=8)}"
    did = f"waited {_named(place)}" if place else "had ended"
    if parted.elsewhere:
        place = parted.elsewhere[one]
        inside = "" if place.function == "<module>" else f"in {shortened(place.function, 20)}() "
        stood = f"{'were' if several else 'was'} {inside}".rstrip()
        did = f"{parted.asked.get(one, stood)} at line {place.line}"
    title = f"{who} {did} while rank {rest[0]} waited {_named(waited)}"
    if one in parted.asked:
        title = f"{who} {did} while rank {rest[0]} waited for it"
    elif one in parted.left_out:
        call = parted.left_out[one]
        title = f"{who} left out {call.operation} of {rank_table.sizes(call.sizes)}, in which rank {rest[0]} waited"
    elif set(parted.apart) == set(parted.places) and len(parted.places) > 1:
        title = f"{who} wait for each other in different collectives"
    alone, why = _decided(parted, process, place, waited)
    fix, code = _remedy(parted)
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=title,
        summary=(
            f"{' '.join(_sentence(parted, rank) for rank in sorted(parted.steps | parted.ended)[:6])} "
            + _why(parted)
            + why
        ),
        fix=fix,
        fix_code=code,
        ranks=parted.apart,
        first_step=min(whole.values() if (whole := _whole(parted)) else parted.steps.values()),
        evidence=[
            Evidence(f"rank {rank}", _sentence(parted, rank).removeprefix(f"Rank {rank} ").rstrip("."))
            for rank in sorted(parted.steps | parted.ended)[:16]
        ],
        location=alone or place or waited,
        seen_at=(place if alone else waited) if place else None,
        false_alarm="A rank that could not reach the others for another reason, such as a network that failed.",
    )


def _remedy(parted: Parted) -> tuple[str, str]:
    """What to do, in words and as an example."""
    if parted.elsewhere:
        return FIX_ASKED if parted.apart[0] in parted.asked else FIX_ELSEWHERE, ""
    if parted.stood:
        return FIX_STOOD, ""
    if parted.ended:
        return FIX, EXAMPLE
    return FIX_UNLIKE if parted.aborted and not parted.left_out else FIX_APART, TOGETHER


def _decided(parted: Parted, process: Process, place: Location | None, waited: Location) -> tuple[Location | None, str]:
    """The line by which a rank may have left the path of the others, and a sentence about it."""
    if place is None or parted.elsewhere or parted.left_out:
        return None, ""
    alone = decisions.between(process, place, waited)
    if alone is not None:
        return alone, decisions.said(alone)
    last = max((place, waited), key=lambda one: one.line)
    whole = _whole(parted)
    behind = {f"Rank {rank}": whole[rank] for rank, one in parted.places.items() if one == last and rank in whole}
    return decisions.skipping(process, place, waited, behind) if behind else (None, "")


def _why(parted: Parted) -> str:
    if parted.stood:
        return STOOD.format(seconds=duration(parted.stood))
    if parted.aborted:
        return UNLIKE.format(who=f"rank {listed(parted.aborted, most=4)}")
    return CAME_NOT if parted.elsewhere else PARTED


def _sentence(parted: Parted, rank: int) -> str:
    place = parted.places.get(rank)
    if (there := parted.elsewhere.get(rank)) is not None:
        inside = "" if there.function == "<module>" else f"in {there.function}() "
        did = parted.asked.get(rank) or f"was {inside}".rstrip()
        text = f", `{there.source}`," if there.source else ""
        return f"Rank {rank} {did} at line {there.line}{text} after {plural(parted.steps[rank], 'step')}."
    if place is None:
        return f"Rank {rank} ended normally after {plural(parted.ended[rank], 'step')}."
    text = f", `{place.source}`," if place.source else ""
    least = "at least " * (rank not in _whole(parted))
    sentence = f"Rank {rank} waited at line {place.line}{text} after {least}{plural(parted.steps[rank], 'step')}."
    call = parted.left_out.get(rank)
    if call is not None:
        sentence += f" Just before, it left out the {call.operation} of {rank_table.sizes(call.sizes)} that it had "
        sentence += "always called there."
    return sentence


def _whole(parted: Parted) -> dict[int, int]:
    """Steps of the ranks whose record is whole: an abort loses what was not written yet."""
    return {rank: steps for rank, steps in parted.steps.items() if rank not in parted.aborted}


def _named(place: Location) -> str:
    return f"in {shortened(place.source, 30)}" if place.source else f"at line {place.line}"
