"""straggler: one rank's own work takes longer than that of the others, which wait for it in every backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.throughput import contention
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.distributed.straggler import alone, blocks_of_ranks, own_work
from tracelyze.diagnosis import Chart, Cost, Evidence, Finding
from tracelyze.formatting import duration, number, percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rules.distributed.straggler.own_work import OwnWork

FIX = "Give {all} the same work on the same hardware. If only one rank logs and saves, do it rarely."


def check(process: Process, limits: Limits) -> Outcome:
    """Time outside of backward, where ranks wait for each other, against that of the other ranks."""
    paces: dict[int, OwnWork] = {
        peer.rank: peer.gathered[RULE.id]
        for peer in process.peers
        if RULE.id in peer.gathered and peer.thread == 1 and peer.attempt == process.attempt
    }
    if len(paces) < 2:
        return Skipped("the run has one rank", "not-applicable")
    reason = own_work.shared_out(paces)
    if reason:
        return Skipped(reason, "not-applicable")
    if any(pace.device != "cpu" for pace in paces.values()):
        return Skipped("on a device the host does not see when work is done", record="--profile-every 100")
    if min(pace.steps for pace in paces.values()) < limits["steps"]:
        return Skipped(f"fewer than {limits['steps']:.0f} steps of a rank were looked at")
    if min(pace.seconds for pace in paces.values()) < limits["seconds"]:
        return Skipped("the ranks were seen too briefly to tell a slow one from a machine that others use")
    paces = own_work.without_waits(paces)
    slowest = max(paces, key=lambda rank: paces[rank].own)
    had = 1.0 - paces[slowest].crowded  # share of its time for which it had a processor when it wanted one
    usual = own_work.usual_of(slowest, paces, "own")
    waited = own_work.usual_of(slowest, paces, "backward") - paces[slowest].backward
    step = had * (paces[slowest].own + paces[slowest].backward)
    worked = own_work.more_work(slowest, paces, limits["work"])  # within its backward, too, and whatever others did
    own = paces[slowest].own * (had if worked < limits["share"] * step else 1.0)
    excess = own - usual
    if max(excess, worked) < limits["share"] * step or excess < limits["least"] or own < limits["ratio"] * usual:
        least, most = sorted((usual, own))
        return Passed(f"the ranks' own work takes {duration(least)} to {duration(most)} a step")
    if waited < limits["waited"] * excess:
        return Passed(f"rank {slowest} takes {duration(excess)} longer a step, and the others do not wait for it")
    return [_finding(process, slowest, paces, usual, waited, limits)]


def _finding(
    process: Process, rank: int, paces: dict[int, OwnWork], usual: float, waited: float, of: Limits
) -> Finding:
    slow = paces[rank]
    step = slow.own + slow.backward
    lost = min(waited, slow.own - usual)
    loads = slow.loading >= of["loading"] * (slow.own - usual)
    place, doing = own_work.doing(rank, paces, of)
    batch, other = slow.values, own_work.usual_of(rank, paces, "values")
    larger = batch >= of["work"] * other
    block = blocks_of_ranks.line(process) if larger else None
    them, wait = (f"rank {min(paces.keys() - {rank})}", "waits") if len(paces) == 2 else ("the others", "wait")
    if loads and block is None:
        made = "" if slow.loads_at is None else f" Its samples are made in line {slow.loads_at.line}."
        why = f"Most of the difference is waiting for batches: its loader, or the disk it reads from, is slower.{made}"
    elif larger:
        why = f"Rank {rank}'s batches hold more: {number(batch)} values in the median, {number(other)} for {them}."
    else:
        why = f"Rank {rank} is not waiting for batches: {doing}."
    call = None if loads or larger else alone.called(process, place)
    seconds = lost * len(process.longest.steps) if process.optimizations else 0.0
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"Rank {rank} is the slowest, and {them} {wait} {duration(waited)} a step for it",
        summary=f"Outside {slow.waits_in}, rank {rank} needs {duration(slow.own)} a step, {them} {duration(usual)}. "
        f"In {slow.waits_in}, {them} {wait} {duration(waited)} a step for rank {rank}. {why} At the pace of {them} a "
        f"step would be {percent(lost / step)} shorter on {alone.everyone(process)}.",
        fix=(call.fix if call else FIX.format(all=alone.everyone(process)))
        if block is None
        else blocks_of_ranks.FIX.format(line=block.line),
        fix_code="" if block is None else blocks_of_ranks.in_turn(process, block),
        ranks=[rank],
        evidence=[
            Evidence("own work of the slowest rank", slow.own, "s"),
            Evidence(f"own work of {them}" + " (median)" * (len(paces) > 2), usual, "s"),
            Evidence("processor time of a step, of the slowest rank", slow.processor, "s"),
            Evidence(f"processor time of a step, of {them}", own_work.usual_of(rank, paces, "processor"), "s"),
            Evidence(f"time that {them} {wait} a step", waited, "s", of["least"], of.source("least")),
            Evidence("steps looked at", slow.steps, "steps", of["steps"], of.source("steps"), role="basis"),
        ],
        cost=Cost(seconds, lost / step),
        location=block or ((slow.loads_at or process.location("loader")) if loads else call.place if call else place),
        seen_at=place if call else None,
        charts=_side_by_side(paces),
        false_alarm="A rank that does more on purpose.",
    )


def _side_by_side(paces: dict[int, OwnWork]) -> list[Chart]:
    there = next(iter(paces.values())).waits_in
    waiting = "waiting in collectives" if there == own_work.COLLECTIVES else f"{there}, and waiting in it"
    parts = {
        "own work": ("compute", [pace.own * 1e3 for pace in paces.values()]),
        waiting: (
            "communication",
            [pace.backward * 1e3 for pace in paces.values()],
        ),
    }
    return [pictures.of_ranks("A step of each rank", "milliseconds", list(paces), parts, "ms")]


RULE = Rule(
    id="straggler",
    family="distributed",
    severity="warning",
    title="One rank slows down the others",
    about="Ranks wait for each other when gradients are averaged, so the slowest one sets the pace of all.",
    check=check,
    gather=own_work.of,
    verify="Record the run again: the ranks' own work takes equally long.",
    absent="The run has one rank.",
    needs=(("steps.backward_seconds",),),
    thresholds=(
        Threshold("steps", 10, "steps", "derived: the median of ten is not moved by four odd ones"),
        Threshold("seconds", contention.SHORTEST, "s", "derived: what others do to processors is read once a second"),
        Threshold("share", 0.15, "share", "derived: of a step; machines of one kind differ by less"),
        Threshold("least", 0.002, "s", "derived: scheduling on a shared machine costs a step up to 2 ms"),
        Threshold("ratio", 1.25, "times", "derived: a quarter more than the others, of a step whose half is own work"),
        Threshold("work", 1.5, "times", "derived: twice the excess of `ratio`, for what is all of a step's work"),
        Threshold("waited", 0.5, "share", "derived: most of what it takes longer is waited for: it holds others up"),
        Threshold("loading", 0.5, "share", "derived: of what it takes longer; most of it has to be its loader"),
        Threshold("line", 0.5, "share", "derived: of what it takes longer; most of it has to be at that line"),
        Threshold("reads", 0.9, "reads", "derived: in each step, but for a few"),
        Threshold("elsewhere", 0.25, "share", "derived: of its share; on slower hardware all ranks are found there"),
    ),
    not_when="Ranks that are equally slow, stages of a pipeline, ranks that train different models, a rank whose "
    "processors other programs kept busy, first batches of an epoch, occasional evaluation or saving on one rank.",
)
