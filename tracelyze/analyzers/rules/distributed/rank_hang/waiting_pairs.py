"""Ranks that wait for each other in sends and receives, read from their stacks: Gloo keeps no record of these calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracelyze.analyzers.recorded.run import Peer
    from tracelyze.analyzers.rules.distributed.rank_hang.late_ranks import Rank
    from tracelyze.diagnosis import Location


@dataclass(frozen=True)
class Waiting:
    """A rank that stands in `call` ("send" or "recv"), the line of the program that called it, and its steps."""

    rank: int
    call: str
    place: Location
    steps: int
    stack: str


def of(peers: Sequence[Peer], ranks: Mapping[int, Rank]) -> list[Waiting]:
    """The ranks that wait in a send or a receive, if every rank that has not ended normally does; else none.

    A rank that is anywhere else may be at work, and send when it is done.
    """
    found = []
    for peer in peers:
        doing = ranks[peer.rank].doing if peer.rank in ranks else None
        if doing is not None and doing.ended:
            continue
        innermost = doing.stack.splitlines()[-1] if doing is not None and doing.stack else ""
        call = innermost.rpartition(" ")[2]
        if doing is None or doing.location is None or "torch/distributed/" not in innermost:
            return []
        if call not in ("send", "recv"):
            return []
        found.append(Waiting(peer.rank, call, doing.location, peer.steps, doing.stack))
    return found


def finding(waiting: Sequence[Waiting], rule: str) -> Finding:
    """Which rank waits at which line."""
    receiving = [one.rank for one in waiting if one.call == "recv"]
    who = (
        "Both ranks"
        if len(waiting) == 2
        else f"Rank{'' if len(waiting) == 1 else 's'} " + listed((one.rank for one in waiting), most=8)
    )
    if len(receiving) == len(waiting):
        what = f"wait{'s' if len(waiting) == 1 else ''} to receive, and no rank sends"
    elif receiving:
        what = "wait for each other, in sends and receives that do not match"
    else:
        what = f"wait{'s' if len(waiting) == 1 else ''} to send, and no rank receives"
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=f"{who} {what}",
        summary=(
            f"{' '.join(_sentence(one) for one in waiting[:6])} A receive ends when the other rank sends, and a send "
            "when it receives. One of these ranks has left out, or already made, the call that its peer waits for."
        ),
        fix="Pair the calls: for each recv(src) of one rank a send(dst) of the other, in the same order and under the "
        "same conditions. A branch that leaves out a send must leave out its receive too.",
        fix_code="ops = [dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, theirs, peer)]\n"
        "for work in dist.batch_isend_irecv(ops):  # starts both sides at once\n    work.wait()",
        ranks=[one.rank for one in waiting],
        first_step=min(one.steps for one in waiting),
        evidence=[
            *(
                Evidence(f"rank {one.rank}", _sentence(one).removeprefix(f"Rank {one.rank} ").rstrip("."))
                for one in waiting[:16]
            ),
            *(Evidence(f"stack of rank {one.rank}, which waits", one.stack) for one in waiting[:2]),
        ],
        location=waiting[0].place,
        false_alarm="A rank of another program, which is not recorded here, that is to send.",
    )


def _sentence(one: Waiting) -> str:
    return (
        f"Rank {one.rank} waited in {one.call} at line {one.place.line}, `{one.place.source}`, "
        f"after {plural(one.steps, 'step')}."
    )
