"""Where in a trace file which stretch of time stands, so that one step can be looked at again without the rest."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from tracelyze.analyzers.kineto.reading.events import Span
from tracelyze.analyzers.kineto.timeline.categories import Kind, kind_of

HOST_KINDS = frozenset({Kind.RUNTIME, Kind.OPERATOR, Kind.ANNOTATION, Kind.FRAME})
_MOST_CATEGORIES = 1000


class Blocks:
    """The parts of a file that were read in one go: offset and length in bytes, and the time that host events span."""

    def __init__(self) -> None:
        self.host_events = 0
        self._offset, self._length = array("q"), array("q")
        self._low, self._high = array("d"), array("d")
        self._host: dict[str, bool] = {}

    def add(self, offset: int, length: int, events: list[Any]) -> None:
        """Notes one block."""
        host = self._host
        low, high, count = float("inf"), float("-inf"), 0
        for event in events:
            if type(event) is not Span:
                continue
            wanted = host.get(event.cat)
            if wanted is None:
                wanted = kind_of(event.cat) in HOST_KINDS
                if len(host) < _MOST_CATEGORIES:
                    host[event.cat] = wanted
            if wanted:
                count += 1
                start = event.ts
                end = start + event.dur
                if start < low:
                    low = start
                if end > high:
                    high = end
        if count:
            self.host_events += count
            self._offset.append(offset)
            self._length.append(length)
            self._low.append(low)
            self._high.append(high)

    def within(self, windows: list[tuple[float, float]]) -> Iterator[tuple[int, int]]:
        """Offset and length of the blocks with a host event that may touch one of the windows, in order."""
        for offset, length, low, high in zip(self._offset, self._length, self._low, self._high, strict=True):
            if any(low < end and high > start for start, end in windows):
                yield offset, length
