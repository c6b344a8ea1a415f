"""Ranks that wait for each other in different collectives: under one number of a group they enqueued unlike ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelyze.diagnosis import Evidence, Finding, Location
from tracelyze.formatting import listed, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracelyze.analyzers.rules.distributed.rank_hang.late_ranks import Call, Rank

_SAME_SIZES = ("all_reduce", "allreduce", "broadcast")  # operations whose tensors have one size on all ranks


@dataclass(frozen=True)
class Mismatch:
    """What each rank enqueued under one number of a group, and the ranks that are not with most of them.

    `apart` has all ranks where no side is larger: nothing shows then which one left the path.
    """

    calls: dict[int, Call]
    apart: list[int]

    @property
    def rest(self) -> list[int]:
        """The ranks that did what most did."""
        return [rank for rank in self.calls if rank not in self.apart]


def of(ranks: Iterable[Rank]) -> Mismatch | None:
    """The first number of a group under which ranks wait in unlike collectives; None without one.

    No hang elsewhere makes that: ranks of a group have to enqueue the same collectives in the same order.
    """
    waits: dict[tuple[str, int], dict[int, Call]] = {}
    for one in ranks:
        for group, pending in one.pending.items():
            if pending:
                waits.setdefault((group, pending[0].sequence), {})[one.rank] = pending[0]
    found = [calls for _, calls in sorted(waits.items(), key=lambda item: item[0][1]) if _unlike(calls)]
    if not found:
        return None
    calls = dict(sorted(found[0].items()))
    sides = Counter(_kind(call, calls) for call in calls.values()).most_common()
    usual = sides[0][0] if len(sides) == 1 or sides[0][1] > sides[1][1] else None
    return Mismatch(calls, [rank for rank, call in calls.items() if _kind(call, calls) != usual])


def _unlike(calls: Mapping[int, Call]) -> bool:
    return len({_kind(call, calls) for call in calls.values()}) > 1


def _kind(call: Call, calls: Mapping[int, Call]) -> tuple[str, str]:
    """What has to be equal: the operation, and its sizes where all ranks run the same one that needs equal ones."""
    same = len({other.operation for other in calls.values()}) == 1
    return call.operation, call.sizes if same and call.operation.startswith(_SAME_SIZES) else ""


def finding(seen: Mismatch, rule: str, total: int) -> Finding:
    """Which rank enqueued what, and at which lines."""
    one = seen.calls[seen.apart[0]]
    other = (
        seen.calls[seen.rest[0]]
        if seen.rest
        else next(call for call in seen.calls.values() if _kind(call, seen.calls) != _kind(one, seen.calls))
    )
    sizes = one.operation == other.operation
    where = {rank: innermost(call.stack) for rank, call in seen.calls.items()}
    sentences = [_sentence(rank, call, where[rank], sizes) for rank, call in seen.calls.items()]
    who = f"Rank{'s' if len(seen.apart) > 1 else ''} {listed(seen.apart, most=4)}"
    wrote = f"{one.operation} of other sizes" if sizes else one.operation
    unlike = f"in {shortened(wrote, 26)}, the others in {shortened(other.operation, 16)}"
    title = f"{who} {'wait' if len(seen.apart) > 1 else 'waits'} {unlike}"
    if not seen.rest:
        title = f"{who} wait for each other in different collectives"
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=title,
        summary=(
            f"As number {one.sequence:,} of {one.description or 'group ' + one.group}, {'; '.join(sentences[:6])}. "
            "The ranks of a group have to enqueue the same collectives in the same order and with the same sizes: "
            "these wait for each other for ever. A rank that skips a collective, or runs out of batches first, shows "
            "so, too: it is already at the next one."
        ),
        fix="Let every rank take the same branches around collectives, with the same number of batches and the same "
        "shapes; code that only some ranks run must hold none. Where a branch hangs on a value of the rank's own (a "
        "loss, a NaN), exchange that value first.",
        ranks=seen.apart,
        evidence=[
            Evidence("ranks", f"{len(seen.calls)} of {total} wait here"),
            *(Evidence(f"rank {rank}", text) for rank, text in list(zip(seen.calls, sentences, strict=True))[:16]),
            *(
                Evidence(f"stack of rank {rank}", seen.calls[rank].stack)
                for rank in [*seen.apart[:2], *seen.rest[:1]]
                if seen.calls[rank].stack
            ),
        ],
        location=where[seen.apart[0]],
        seen_at=where[seen.rest[0]] if seen.rest else None,
        false_alarm="A backend that names one operation differently on its ranks.",
    )


def _sentence(rank: int, call: Call, place: Location | None, sizes: bool) -> str:
    at = f" at {place.file.rsplit('/', 1)[-1]}:{place.line}" if place else ""
    return f"rank {rank} enqueued {call.operation}{f' of {call.sizes}' if sizes else ''}{at}"


def innermost(stack: str) -> Location | None:
    """The innermost line of a stack as it is stored: file:line function."""
    place, _, function = stack.split("\n", 1)[0].partition(" ")
    file, _, line = place.rpartition(":")
    return Location(file, int(line), function) if file and line.isdigit() else None
