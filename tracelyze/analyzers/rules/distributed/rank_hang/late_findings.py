"""The finding about ranks that the others wait for in a collective: what each of them did instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.rules.distributed.rank_hang import mismatched_collectives, rank_table
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.rules.distributed.rank_hang.doing import Doing
    from tracelyze.analyzers.rules.distributed.rank_hang.late_ranks import Call, Late, Rank
    from tracelyze.diagnosis import Location

UNSEEN = (
    " Gloo records no sends and receives, and this job has some: a rank that did not come may itself wait in one, for "
    "a rank that did not send."
)
FIX = (
    "Find out what these ranks did instead: check their stacks (py-spy dump), their logs, and the kernel logs of "
    "their hosts for XID errors and OOM kills. Ranks that take different branches join different collectives."
)
FIX_RECORDED = (
    "Have every rank take the same branches around collectives: the same number of batches (drop_last, or "
    "DistributedDataParallel's join), evaluation and checkpoints on all ranks or followed by a barrier, a time-out of "
    "init_process_group that is longer than these, and no decision by a rank's own loss or count that is not exchanged."
)


def finding(guilty: list[Late], ranks: Mapping[int, Rank], waiting: set[int], rule: str, since: int | None) -> Finding:
    """`guilty`: the ranks that did not come; `waiting`: those that wait in a collective; `since`: the first step."""
    several = len(guilty) > 1
    size = len(ranks.keys() | {late.rank for late in guilty})  # a rank that left no dump is one of the job, too
    others = sorted(waiting - {late.rank for late in guilty})
    call = next((late.call for late in guilty if late.call is not None), None)
    doing = {late.rank: seen for late in guilty if late.rank in ranks and (seen := ranks[late.rank].doing)}
    place = next((seen.location for seen in doing.values() if seen.location), None)
    where = "" if several or place is None else f", in line {place.line} of {place.file.rpartition('/')[2]}"
    unseen = any(one.unseen for one in ranks.values()) and not doing and any(late.how == "behind" for late in guilty)
    return Finding(
        rule=rule,
        severity="critical",
        confidence="possible" if unseen else "likely",
        title=f"{'Ranks' if several else 'Rank'} {listed((late.rank for late in guilty), 8)} "
        f"hold{'' if several else 's'} up a job of {plural(size, 'rank')}{where}",
        summary=f"{rank_table.together({one.rank: _sentence(one, doing.get(one.rank)) for one in guilty[:6]})} "
        f"{rank_table.waiting(len(others), size, 'them' if several else 'it')}{UNSEEN if unseen else ''}",
        fix=FIX_RECORDED if doing else FIX,
        fix_code="" if doing else "py-spy dump --pid <pid of the rank>",
        ranks=[late.rank for late in guilty],
        first_step=since,
        evidence=[
            *(Evidence(f"rank {late.rank}", rank_table.in_short(late, doing.get(late.rank))) for late in guilty[:16]),
            *_collective(call),
            Evidence("what each rank waits in", rank_table.text(ranks, guilty)),
            *([Evidence("enqueued by the ranks that wait at", call.stack)] if call and call.stack else []),
            *_stacks({rank: ranks[rank].doing for rank in others[:2]}, "which waits"),
            *_stacks(dict([*doing.items()][:4]), "which is waited for"),
        ],
        location=place or _joined_at(call, others, ranks),
        false_alarm="" if doing else "Dumps written at different times, while the job was still making progress.",
    )


def _collective(call: Call | None) -> list[Evidence]:
    """The collective that the late ranks did not join."""
    if call is None:
        return []
    return [
        Evidence("collective", f"{call.operation} number {call.sequence:,}"),
        Evidence("group", call.description or call.group),
        Evidence("sizes of its tensors", rank_table.sizes(call.sizes)),
    ]


def _stacks(doing: Mapping[int, Doing | None], who: str) -> list[Evidence]:
    seen = {rank: one.stack for rank, one in doing.items() if one is not None and one.stack}
    return [Evidence(f"stack of rank {rank}, {who}", stack) for rank, stack in seen.items()]


def _joined_at(call: Call | None, others: list[int], ranks: Mapping[int, Rank]) -> Location | None:
    """The line at which the ranks that wait have joined the collective."""
    if call is not None and call.stack:
        return mismatched_collectives.innermost(call.stack)
    return next((seen.location for rank in others if (seen := ranks[rank].doing) and seen.location), None)


def _sentence(late: Late, doing: Doing | None) -> str:
    instead = f": it {doing.what}" if doing else ""
    if doing and late.how in ("absent", "empty"):
        return f"Rank {late.rank} {doing.what}.{rank_table.missed(late)}"
    if late.call is None or late.how in ("absent", "empty"):
        return f"Rank {late.rank} {rank_table.IN_FULL[late.how]}{instead}."
    call = late.call
    return (
        f"Rank {late.rank} {rank_table.IN_FULL[late.how]} {call.operation} number {call.sequence:,} of "
        f"{call.description or 'group ' + call.group}, which rank{'s' if len(late.waiting) > 1 else ''} "
        f"{listed(late.waiting, 8)} {'completed' if late.how == 'stuck' else 'had enqueued'}{instead}."
    )
