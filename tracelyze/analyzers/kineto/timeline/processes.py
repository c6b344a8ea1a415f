"""Which launch stands behind which device activity, also where the ranks of a job were merged into one file."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.timeline.table import Array, Integers
from tracelyze.analyzers.kineto.timeline.trace import Trace

MOST_PAIRS: Final = 4096
"""Pairs of process and device that are compared."""

_ALIKE: Final = 0.01
"""Share of the links by which two processes may differ and still explain a device equally well."""


def launching(trace: Trace) -> list[str]:
    """The processes that launch device work, as text, in the order of the trace's threads."""
    if not len(trace.launches):
        return []
    used = np.flatnonzero(np.bincount(trace.launches["thread"]))
    return list(dict.fromkeys(str(trace.threads[thread][0]) for thread in used.tolist()))


def several(trace: Trace) -> bool:
    """Whether more than one process launches device work."""
    return len(launching(trace)) > 1


def launches_by_number(trace: Trace, chosen: Array | None = None, rows: Array | None = None) -> Integers:
    """The launch with the number of each device row, -1 for none, shape [device rows].

    `chosen`: only these launches count; `rows`: only these device rows are looked at, shape [rows].
    """
    correlation, known = trace.device["correlation"], trace.launches["correlation"]
    correlation = correlation if rows is None else correlation[rows]
    known = known if chosen is None else known[chosen]
    if not len(known):
        return np.full(len(correlation), -1, dtype=np.int32)
    place = np.minimum(np.searchsorted(known, correlation), len(known) - 1).astype(np.int32)
    missing = (known[place] != correlation) | (correlation < 0)
    found = place if chosen is None else chosen[place].astype(np.int32)
    found[missing] = -1
    return found


def with_replays(trace: Trace, found: Integers) -> Integers:
    """The launches `found`, and for device rows without one the last start of a graph before them, shape [device rows].

    Some profilers give the work of a graph no number. Only starts of graphs count whose own number no work bears.
    """
    graphs = np.flatnonzero(trace.launches["replays"])
    graphs = graphs[~np.isin(graphs, found)] if len(graphs) else graphs
    missing = np.flatnonzero(found < 0) if len(graphs) else graphs
    if not len(missing):
        return found
    graphs = graphs[np.argsort(trace.launches["start"][graphs], kind="stable")]
    place = np.searchsorted(trace.launches["start"][graphs], trace.device["start"][missing], side="right") - 1
    linked = found.copy()
    linked[missing[place >= 0]] = graphs[place[place >= 0]]
    return linked


def own_launches(trace: Trace) -> Integers:
    """The launch of each device row among those of the process that drives its device, -1 for none, shape [rows].

    That is the process whose launches explain most of the device's work without coming after it, and among equals the
    one whose launches come shortly before it.
    """
    names = launching(trace)
    of_thread = np.array([names.index(name) if name in names else -1 for name in (str(p) for p, _ in trace.threads)])
    process = of_thread[trace.launches["thread"]]
    owners: dict[tuple[str, str], list[int]] = {}
    for queue, (owner, device, _) in enumerate(trace.queues):
        owners.setdefault((str(owner), str(device)), []).append(queue)
    found = np.full(len(trace.device), -1, dtype=np.int32)
    for queues in list(owners.values())[: max(1, MOST_PAIRS // len(names))]:
        rows = np.flatnonzero(np.isin(trace.device["queue"], queues))
        links = [launches_by_number(trace, np.flatnonzero(process == index), rows) for index in range(len(names))]
        found[rows] = max(links, key=lambda link: _credit(trace, rows, link, len(rows)))
    return found


def _credit(trace: Trace, rows: Array, link: Integers, count: int) -> tuple[int, float]:
    """How well launches explain rows: links that do not come too late, in hundredths of the rows; then how short."""
    linked = link >= 0
    delay = trace.device["start"][rows[linked]] - trace.launches["start"][link[linked]]
    early = delay[delay >= 0]
    median = float(np.median(early)) if len(early) else np.inf
    return round(len(early) / max(count, 1) / _ALIKE), -median
