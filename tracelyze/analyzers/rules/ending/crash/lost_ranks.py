"""A rank that ended because another one was no longer there: what is known of that one, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.recorded import deaths
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def words(process: Process, rank: int, usual_fix: str) -> tuple[str, str, str]:
    """Title, what such an exception means, and what to do, for `rank`, whose exception speaks of other ranks."""
    gone = deaths.ended_by_themselves(process)
    if not gone:
        return (
            f"Rank {rank} lost contact with the other ranks",
            "That is how a rank ends when another one is gone, hangs, or waits in another call"
            + ("." if any(peer.rank != rank for peer in process.peers) else ", which may not have been recorded."),
            usual_fix,
        )
    other, steps = gone[0].rank, plural(len(gone[0].steps), "optimizer step")
    meaning = (
        f"Rank {other} had ended by itself, after {steps}, and took no part in what this rank waited for: the ranks "
        "did not call the same collectives equally often. A condition that depends on the rank or on its data, a "
        "return before a collective, or loaders of unlike length do this."
    )
    fix = (
        "Let every rank reach this call at every step, with a part that is empty or zero where it has nothing to do, "
        "and stop all ranks at the same step."
    )
    return f"Rank {rank} waited for rank {other}, which had ended by itself", meaning, fix
