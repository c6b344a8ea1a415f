"""rank-hang: a job hangs because one rank, or a few, did not join a collective in which the others wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.signatures.hangs import (
    late_ranks,
    mismatched_collectives,
    parted_ranks,
    rank_table,
    waiting_pairs,
)
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.computed.ranks.doing import Doing
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.signatures.hangs.late_ranks import Late, Rank

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


def check(process: Process, limits: Limits) -> Outcome:
    """The collectives that all ranks had enqueued, and which of them waits for whom."""
    ranks = late_ranks.together((peer.rank, peer.gathered.get(RULE.id)) for peer in process.peers)
    started_together = [peer for peer in process.peers if peer.attempt == process.attempt]
    pairs = waiting_pairs.of(started_together, ranks)
    if pairs:
        return [waiting_pairs.finding(pairs, RULE.id)]
    parted = parted_ranks.of(started_together, ranks)
    if parted is not None and not late_ranks.guilty(ranks):
        return [parted_ranks.finding(parted, RULE.id, process)]
    stands = parted_ranks.standing(started_together, ranks, limits)
    parted = parted_ranks.stopped(started_together, stands)
    if parted is not None:
        return [parted_ranks.finding(parted, RULE.id, process)]
    if not any(one.enqueued or one.members for one in ranks.values()):
        return Skipped("the run has no dumps of collectives", "not-applicable")
    waiting = late_ranks.waiting(ranks)
    if not waiting and stands:
        return Skipped(f"rank {listed(sorted(stands), 8)} was last seen waiting for others; who is late is not known")
    if not waiting:
        return Passed(f"no rank of {len(ranks)} waits in a collective")
    mismatch = mismatched_collectives.of(ranks.values())
    if mismatch is not None:
        return [mismatched_collectives.finding(mismatch, RULE.id, len(ranks))]
    guilty = late_ranks.guilty(ranks)
    if not guilty:
        return Passed(f"{plural(len(waiting), 'rank')} wait in collectives that all ranks of their groups have joined")
    at_work = [late.rank for late in guilty if late.rank in ranks and ranks[late.rank].is_at_work()]
    if at_work:
        return Passed(f"{plural(len(waiting), 'rank')} wait for rank {listed(at_work, 8)}, which is at work")
    own_faults = ("exception", "signal")
    died = {p.rank for p in process.peers if p.death and p.death.exit.kind in own_faults and not p.death.follows}
    if all(late.rank in died and (seen := ranks[late.rank].doing) and not seen.stack for late in guilty):
        return Passed(f"others waited for rank {guilty[0].rank}, which had ended: see crash and killed")
    return [_finding(guilty, ranks, set(waiting), timing.newest_step(process))]


def _finding(guilty: list[Late], ranks: Mapping[int, Rank], waiting: set[int], since: int | None) -> Finding:
    several = len(guilty) > 1
    size = len(ranks.keys() | {late.rank for late in guilty})  # a rank that left no dump is one of the job, too
    others = sorted(waiting - {late.rank for late in guilty})
    first = next((late.call for late in guilty if late.call is not None), None)
    doing = {late.rank: seen for late in guilty if late.rank in ranks and (seen := ranks[late.rank].doing)}
    held_up = next((seen for rank in others if (seen := ranks[rank].doing) and seen.location), None)
    place = next((seen.location for seen in doing.values() if seen.location), None)
    joined = held_up.location if held_up else None
    if first and first.stack:
        joined = mismatched_collectives.innermost(first.stack)
    where = "" if several or place is None else f", in line {place.line} of {place.file.rpartition('/')[2]}"
    unseen = any(one.unseen for one in ranks.values()) and not doing and any(late.how == "behind" for late in guilty)
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="possible" if unseen else "likely",
        title=f"{'Ranks' if several else 'Rank'} {listed((late.rank for late in guilty), 8)} "
        f"hold{'' if several else 's'} up a job of {plural(size, 'rank')}{where}",
        summary=f"{rank_table.together({one.rank: _sentence(one, doing.get(one.rank)) for one in guilty[:6]})} "
        f"{rank_table.waiting(len(others), size, 'them' if several else 'it')}{UNSEEN if unseen else ''}",
        fix=FIX_RECORDED if doing else FIX,
        fix_code="" if doing else "py-spy dump --pid <pid of the rank>",
        ranks=[late.rank for late in guilty], first_step=since,
        evidence=[
            *(Evidence(f"rank {late.rank}", rank_table.in_short(late, doing.get(late.rank))) for late in guilty[:16]),
            *([Evidence("collective", f"{first.operation} number {first.sequence:,}"),
               Evidence("group", first.description or first.group),
               Evidence("sizes of its tensors", rank_table.sizes(first.sizes))] if first else []),
            Evidence("what each rank waits in", rank_table.text(ranks, guilty)),
            *([Evidence("enqueued by the ranks that wait at", first.stack)] if first and first.stack else []),
            *(Evidence(f"stack of rank {rank}, which waits", seen.stack) for rank in others[:2]
              if (seen := ranks[rank].doing) and seen.stack),
            *(Evidence(f"stack of rank {rank}, which is waited for", seen.stack) for rank, seen in [*doing.items()][:4]
              if seen.stack),
        ],
        location=place or joined,
        false_alarm="" if doing else "Dumps written at different times, while the job was still making progress.",
    )  # fmt: skip


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


RULE = Rule(
    id="rank-hang",
    family="distributed",
    severity="critical",
    title="A rank blocks the others",
    about="A collective completes only when all ranks of its group have joined: one missing rank blocks all others.",
    check=check,
    gather=late_ranks.read,
    verify="Restart the job: it gets past the step where it hung.",
    absent="The run has no dumps of collectives.",
    whole_process=True,
    thresholds=(
        Threshold("looks", 5, "looks", "derived: one a second; nobody ends a job for having stood less long"),
        Threshold("times", 2, "longest steps", "derived: a step that is under way takes about as long as others"),
    ),
    not_when="Ranks that ended normally, dumps of a job that is still making progress.",
    references=("https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html",),
)
