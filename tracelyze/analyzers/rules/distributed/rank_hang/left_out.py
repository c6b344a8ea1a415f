"""The collective that a rank left out: what it always called next, at a place where it went on to the one after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.rules.distributed.rank_hang.late_ranks import Call, Rank

BEFORE: Final = 6  # calls that have to be the same before it: a loop's round may hold equal ones
OFTEN: Final = 2  # rounds of the loop in which these were followed by the call, and never by another one


def of(one: Rank) -> Call | None:
    """What the rank left out right before its last collective; None where it called what it always calls there.

    A rank that goes from a collective to what comes after the next one has skipped that. One that calls something new
    has not: the others may have left that out.
    """
    for calls in one.recent.values():
        found = _left_out(calls)
        if found is not None:
            return found
    return None


def _left_out(calls: Sequence[Call]) -> Call | None:
    kinds = [(call.operation, call.sizes) for call in calls]
    if len(kinds) <= BEFORE:
        return None
    *past, last = kinds
    before = past[-BEFORE:]
    at = [end for end in range(BEFORE, len(past)) if past[end - BEFORE : end] == before]
    usual = {past[end] for end in at}
    then = {past[end + 1] for end in at if end + 1 < len(past)}
    if len(at) < OFTEN or len(usual) != 1 or last in usual or then != {last}:
        return None
    return calls[at[-1]]
