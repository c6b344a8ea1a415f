"""What makes host memory grow, as far as it is known: a sentence, the line, and what to do there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.computed import hooks_added
from tracelyze.analyzers.rules.memory.host_memory_leak import caches, entries, left_full
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_KINDS: Final = ("grows", "caches", "kept")
_OFTEN: Final = 0.5  # derived: hooks a step; a few an epoch take next to nothing


class Culprit(NamedTuple):
    """`told`: behind a sentence on how memory grows; empty where nothing is known. `seen`: its number was seen to grow
    with the steps. `seen_at`: the line that makes it grow, where the one to change is another."""

    told: str
    place: Location | None
    remedy: Remedy | None
    seen: bool = False
    seen_at: Location | None = None


def of(process: Process) -> Culprit:
    """A list that grew, a cache without a bound, hooks that are never removed, or what a dataset itself holds."""
    kept, grows = script_lines.only(process, "kept"), script_lines.only(process, "grows")
    if grows is not None:
        told = f" `{grows.source}` appends to a list that grew from step to step."
        full = left_full.of(process, grows)
        if full is not None:
            remedy = Remedy(full.fix, full.code, diff=full.diff)
            return Culprit(told + full.said, full.place, remedy, seen_at=grows)
        return Culprit(told, grows, entries.bounded(process, grows, dataset=False))
    cached = script_lines.only(process, "caches")
    if cached is not None:
        told = f" `{cached.source}` keeps the results of {cached.function}, more of them until the end."
        told += caches.by_chance(process)
        return Culprit(told, cached, caches.bounded(process, cached), seen=bool(caches.by_chance(process)))
    hooks = hooks_added.of(process)
    if hooks is not None and kept is None and hooks.last >= _OFTEN * len(process.longest.steps["loss"]):
        return Culprit(f" {hooks.said()}", hooks.place, Remedy(hooks.fix, hooks.code), seen=True)
    told = script_lines.said(kept, "puts something into what the dataset itself holds, while it reads")
    return Culprit(told, kept, entries.bounded(process, kept, dataset=True))


def filling(process: Process) -> Location | None:
    """The only line that fills a deque of bounded length, where nothing else is known to grow."""
    return None if any(process.locations(kind) for kind in _KINDS) else script_lines.only(process, "fills")
