"""rank-hang: a job hangs because one rank, or a few, did not join a collective in which the others wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.distributed.rank_hang import (
    late_findings,
    late_ranks,
    mismatched_collectives,
    parted_findings,
    parted_ranks,
    waiting_pairs,
)
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """The collectives that all ranks had enqueued, and which of them waits for whom."""
    starters = {peer.launcher for peer in process.peers}
    job = [peer for peer in process.peers if not any(str(one).endswith(f"-{peer.pid}") for one in starters)]
    ranks = late_ranks.together((peer.rank, peer.gathered.get(RULE.id)) for peer in job or process.peers)
    started_together = [peer for peer in job or process.peers if peer.attempt == process.attempt]
    pairs = waiting_pairs.of(started_together, ranks)
    if pairs:
        return [waiting_pairs.finding(pairs, RULE.id)]
    parted = parted_ranks.of(started_together, ranks)
    if parted is not None and not late_ranks.guilty(ranks):
        return [parted_findings.finding(parted, RULE.id, process)]
    stands = parted_ranks.standing(started_together, ranks, limits)
    parted = parted_ranks.stopped(started_together, stands)
    if parted is not None:
        return [parted_findings.finding(parted, RULE.id, process)]
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
    return [late_findings.finding(guilty, ranks, set(waiting), RULE.id, timing.newest_step(process))]


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
