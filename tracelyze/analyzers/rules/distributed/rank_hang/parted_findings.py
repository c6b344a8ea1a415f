"""The finding about ranks that left the same path: where each of them was, and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.ranks import called_by_rank
from tracelyze.analyzers.rules.distributed.rank_hang import decisions, rank_table
from tracelyze.analyzers.rules.distributed.rank_hang.doing import SAID
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import duration, listed, plural, shortened

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.ranks.called_by_rank import OnlyCall
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rules.distributed.rank_hang.parted_ranks import Parted
    from tracelyze.diagnosis import Location

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


def finding(parted: Parted, rule: str, process: Process) -> Finding:
    """Which rank was where, and which one was not where the others were, by the lines that a process recorded."""
    alone_there = _alone_there(parted, process)
    if alone_there is not None:
        parted = replace(parted, apart=[alone_there[0]])
    one = parted.apart[0]
    place = parted.elsewhere.get(one) or parted.places.get(one)
    other = next((rank for rank in parted.places if rank not in parted.apart), parted.apart[-1])
    waited = parted.places[other]
    alone, why = _decided(parted, process, place, waited)
    fix, code = _remedy(parted)
    if alone_there is not None and alone_there[1].by_rank is not None:
        call, alone = alone_there[1].place, alone_there[1].by_rank
        name = place.function if place else ""
        why = f" Line {alone.line} lets only some ranks call {name}() at line {call.line}: `{alone.source}`."
        fix = (
            f"Call {name}() on every rank, outside of line {alone.line}, and leave only what prints or saves under it."
        )
        code = ""
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=_title(parted, other),
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


def _alone_there(parted: Parted, process: Process) -> tuple[int, OnlyCall] | None:
    """The only rank that waited in a function which a condition on the rank lets only some ranks call."""
    if parted.elsewhere or parted.left_out:
        return None
    opened = [peer.open() for peer in process.peers if peer.rank in parted.places and peer.steps][:1]
    calls = {rank: called_by_rank.of(opened[0], place) for rank, place in parted.places.items()} if opened else {}
    found = [(rank, call) for rank, call in calls.items() if call is not None and call.by_rank is not None]
    return found[0] if len(found) == 1 else None


def _title(parted: Parted, other: int) -> str:
    """What the ranks did that left the path, while another one waited."""
    one, several = parted.apart[0], len(parted.apart) > 1
    who = f"Rank{'s' if several else ''} {listed(parted.apart, most=8)}"
    if one in parted.asked:
        return f"{who} {SAID[parted.asked[one]]} at line {parted.elsewhere[one].line} while rank {other} waited for it"
    if one in parted.left_out:
        call = parted.left_out[one]
        return f"{who} left out {call.operation} of {rank_table.sizes(call.sizes)}, in which rank {other} waited"
    if set(parted.apart) == set(parted.places) and len(parted.places) > 1:
        return f"{who} wait for each other in different collectives"
    if (there := parted.elsewhere.get(one)) is not None:
        inside = "" if there.function == "<module>" else f" in {shortened(there.function, 20)}()"
        did = f"{'were' if several else 'was'}{inside} at line {there.line}"
    else:
        place = parted.places.get(one)
        did = f"waited {_named(place)}" if place else "had ended"
    return f"{who} {did} while rank {other} waited {_named(parted.places[other])}"


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
        did = SAID[parted.asked[rank]] if rank in parted.asked else f"was {inside}".rstrip()
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
