"""rank-hang: a job stands still because one rank, or a few, did not join a collective in which the others wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule
from tracelyze.analyzers.signatures import late_ranks
from tracelyze.diagnosis import Evidence, Finding, Location
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.signatures.late_ranks import Late

HOW = {
    "absent": "left no dump: its process was gone, or could not write one any more",
    "empty": "has no collective to show while its peers wait: its process stands outside of them, or cannot run",
    "behind": "did not join",
    "stuck": "joined and never saw the end of",
}


def check(process: Process, _limits: Limits) -> Outcome:
    """The collectives that all ranks had enqueued."""
    ranks = late_ranks.together((peer.rank, peer.gathered.get(RULE.id)) for peer in process.peers)
    waiting = [one.rank for one in ranks.values() if any(one.pending.values())]
    if not waiting:
        return Passed(f"no rank of {len(ranks)} waits in a collective")
    guilty = late_ranks.guilty(ranks)
    if not guilty:
        return Passed(f"{plural(len(waiting), 'rank')} wait in collectives that all ranks of their groups have joined")
    return [_finding(guilty, len(ranks), set(waiting))]


def _finding(guilty: list[Late], total: int, waiting: set[int]) -> Finding:
    names = ", ".join(str(late.rank) for late in guilty)
    several = len(guilty) > 1
    told = " ".join(_sentence(late) for late in guilty[:6])
    others = waiting - {late.rank for late in guilty}
    first = next((late.call for late in guilty if late.call is not None), None)
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=f"{'Ranks' if several else 'Rank'} {names} hold{'' if several else 's'} up the job of {total} ranks",
        summary=f"{told} {plural(len(others), 'other rank')} of {total} wait for {'them' if several else 'it'}, "
        "directly or in turn.",
        fix="Look at what these ranks did instead: their stacks (py-spy dump), their logs, and the kernel log of their "
        "hosts for XID errors and kills. Ranks that take different branches join different collectives.",
        fix_code="py-spy dump --pid <pid of the rank>",
        ranks=[late.rank for late in guilty],
        evidence=[
            *(Evidence(f"rank {late.rank}", f"{late.how}; {plural(len(late.waiting), 'peer')} ahead of it or waiting")
              for late in guilty[:16]),
            *([Evidence("collective", f"{first.operation} number {first.sequence:,}"),
               Evidence("group", first.description or first.group), Evidence("sizes", first.sizes)] if first else []),
            *([Evidence("enqueued by the ranks that wait at", first.stack)] if first and first.stack else []),
        ],
        location=_place(first.stack) if first and first.stack else None,
        false_alarm="Dumps that were written at different times, while the job still moved.",
    )  # fmt: skip


def _sentence(late: Late) -> str:
    if late.call is None or late.how in ("absent", "empty"):
        return f"Rank {late.rank} {HOW[late.how]}."
    call = late.call
    return (
        f"Rank {late.rank} {HOW[late.how]} {call.operation} number {call.sequence:,} of "
        f"{call.description or 'group ' + call.group}, which rank{'s' if len(late.waiting) > 1 else ''} "
        f"{', '.join(map(str, late.waiting[:8]))} {'completed' if late.how == 'stuck' else 'had enqueued'}."
    )


def _place(stack: str) -> Location | None:
    """The innermost line of a stack as it is stored: file:line function."""
    place, _, function = stack.split("\n", 1)[0].partition(" ")
    file, _, line = place.rpartition(":")
    return Location(file, int(line), function) if file and line.isdigit() else None


RULE = Rule(
    id="rank-hang",
    family="distributed",
    severity="critical",
    title="A rank holds up the others",
    about="A collective ends when all ranks of its group have joined: one that does not come stops every other one.",
    check=check,
    gather=late_ranks.read,
    verify="Start the job again: it passes the step at which it stood.",
    absent="The run has no dumps of collectives.",
    needs=(("collectives.group",),),
    whole_process=True,
    not_when="Ranks that ended normally, dumps of a job that moves.",
    references=("https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html",),
)
