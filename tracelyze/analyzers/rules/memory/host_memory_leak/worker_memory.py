"""Memory that a loader's workers have of their own, and how it grows while they make batches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

FEWEST = 5  # readings: three after the warm-up show a climb and not a step
WARM_UP = 2  # readings: after one batch and after two, libraries and buffers are still being loaded


class Growth(NamedTuple):
    """Of the workers of one loader, summed. `pace`: growth per batch of a worker in the last doubling over that in the
    one before: 1 for a straight line, 0 for a cache that is full. `late`: what the last doubling has added to it.
    `beyond`: it goes on after the first pass."""

    loader: int
    workers: int
    grown: float
    before: float
    batches: int
    pace: float
    late: float
    beyond: bool


def growth(process: Process) -> list[Growth]:
    """The latest pass of each loader with workers, as far as they noted their memory often enough."""
    first: dict[int, int] = {}  # batches that a worker made in the first pass
    latest: dict[int, dict[int, dict[str, Any]]] = {}
    for row in process.tables["fetches"].records():
        if row["worker"] is None or row["loader"] is None or not row["memory"]:
            continue
        loader, worker = int(row["loader"]), int(row["worker"])
        if row["epoch"] == 0:
            first[loader] = max(first.get(loader, 0), int(row["batches"] or 0))
        latest.setdefault(loader, {})[worker] = row
    found = []
    for loader, workers in sorted(latest.items()):
        readings = [[value for value in json.loads(str(row["memory"])) if value] for row in workers.values()]
        length = min(map(len, readings))
        if length < FEWEST:
            continue
        total = [float(sum(one[index] for one in readings)) for index in range(length)]
        late, earlier = total[-1] - total[-2], total[-2] - total[-3]
        epochs = min(int(row["epoch"] or 0) for row in workers.values())
        batches = 1 << (length - 1)
        anew = all(int(row["batches"] or 0) < 2 * batches for row in workers.values())  # they began with this pass
        found.append(
            Growth(
                loader,
                len(readings),
                total[-1] - total[WARM_UP],
                total[WARM_UP],
                batches,
                late / (2 * earlier) if earlier > 0 else 0.0,
                late,
                epochs >= 1 and (anew or batches // 2 >= first.get(loader, 0)),
            )
        )
    return found
