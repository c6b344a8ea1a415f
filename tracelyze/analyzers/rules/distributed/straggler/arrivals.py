"""When ranks reach the same collectives: who comes early waits for the last one.

torch's Flight Recorder says when each rank enqueued the last collectives. Their clocks are compared on one host only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process

FEWEST = 12  # collectives that all ranks reached: the median of so many is not moved by five odd ones


class Arrivals(NamedTuple):
    """Wall time of each of the last collectives of one rank, in seconds since 1970, by group and number in it.

    `broadcasts`: which of them send what one rank has to the others, as a data-parallel forward does with buffers.
    """

    host: Any
    created: dict[tuple[str, int], float]
    broadcasts: tuple[tuple[str, int], ...] = ()


def of(process: Process) -> Arrivals:
    """The collectives of a rank, without sends and receives."""
    rows = process.tables["collectives"].records() if "collectives" in process.tables else ()
    known = [
        ((str(row["group"]), int(row["sequence"])), row)
        for row in rows
        if row["operation"] and not row["p2p"] and row["created"] is not None and row["sequence"] is not None
    ]
    created = {key: float(row["created"]) for key, row in known}
    sent = tuple(key for key, row in known if row["operation"] == "broadcast")
    return Arrivals(process.facts.get("host"), created, sent)


def messages(process: Process) -> float:
    """Sends and receives of a rank, as far as they were counted. Gloo keeps no entries of them: some versions count
    them among what was enqueued, others only among what is complete."""
    rows = process.tables["collectives"].records() if "collectives" in process.tables else ()
    counted = recorded = 0.0
    for row in rows:
        recorded += bool(row["p2p"])
        if row["operation"] is None:
            beyond = float(row["completed"] or 0) - float(row["enqueued"] or 0)
            counted = max(counted, float(row["unseen"] or 0), beyond)
    return max(counted, recorded)


def waits_for_the_first(ranks: Mapping[int, Arrivals]) -> dict[int, float]:
    """By rank, the share of the time for which it waited in broadcasts for what the lowest rank sends, which itself
    waits for nobody there. Outside of backward: gradients are not averaged by broadcasts."""
    common = sorted(set.intersection(*(set(one.broadcasts) for one in ranks.values()))) if ranks else []
    if len(common) < FEWEST or len({one.host for one in ranks.values()}) != 1:
        return {}
    first = np.array([ranks[min(ranks)].created[key] for key in common])
    order, span = np.argsort(first), float(np.ptp(first))
    waited = {}
    for rank, one in ranks.items():
        lag = np.maximum(first - np.array([one.created[key] for key in common]), 0.0)[order]
        waited[rank] = float(np.minimum(lag, 3 * np.median(lag))[1:].sum()) / span if span > 0 else 0.0
    return waited


def waits(ranks: Mapping[int, Arrivals]) -> dict[int, float]:
    """By rank, the share of the time for which it waited in collectives for the last rank; empty where it is not known.

    Lags of single collectives count as three usual ones at most: a rank may save or evaluate now and then.
    """
    common = sorted(set.intersection(*(set(one.created) for one in ranks.values()))) if ranks else []
    if len(common) < FEWEST or len({one.host for one in ranks.values()}) != 1:
        return {}
    times = np.array([[ranks[rank].created[key] for key in common] for rank in ranks])  # [ranks, collectives]
    times = times[:, np.argsort(times.max(axis=0))]
    span = float(times.max(axis=0)[-1] - times.max(axis=0)[0])
    lag = times.max(axis=0) - times
    lag = np.minimum(lag, 3 * np.median(lag, axis=1, keepdims=True))
    return {rank: float(own[1:].sum()) / span for rank, own in zip(ranks, lag, strict=True)} if span > 0 else {}
