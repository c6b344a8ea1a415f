"""Where in a trace file which stretch of time stands, so that one step can be looked at again without the rest."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from tracelyze.analyzers.kineto.reading.events import Span
from tracelyze.analyzers.kineto.timeline.categories import Kind, kind_of

HOST_KINDS = frozenset({Kind.RUNTIME, Kind.OPERATOR, Kind.ANNOTATION, Kind.FRAME})
DEVICE_KINDS = frozenset({Kind.KERNEL, Kind.COPY, Kind.SET})
_MOST_CATEGORIES = 1000


class Blocks:
    """The parts of a file that were read in one go: offset and length in bytes, and the time that host events span.

    Parts with activity of a device are noted beside them, with the time that this activity spans.
    """

    def __init__(self) -> None:
        self.host_events = 0
        self._offset, self._length = array("q"), array("q")
        self._low, self._high = array("d"), array("d")
        self._device_part, self._device_low, self._device_high = array("q"), array("d"), array("d")
        self._host: dict[str, bool] = {}
        self._device: set[str] = set()

    def add(self, offset: int, length: int, events: list[Any]) -> None:
        """Notes one block."""
        host, device = self._host, self._device
        low, high, count = float("inf"), float("-inf"), 0
        begin, finish = low, high
        for event in events:
            if type(event) is not Span:
                continue
            wanted = host.get(event.cat)
            if wanted is None:
                kind = kind_of(event.cat)
                wanted = kind in HOST_KINDS
                if len(host) < _MOST_CATEGORIES:
                    host[event.cat] = wanted
                    if kind in DEVICE_KINDS:
                        device.add(event.cat)
            if not wanted and event.cat in device:
                begin, finish = min(begin, event.ts), max(finish, event.ts)
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
        if finish >= begin:
            self._device_part.extend((offset, length))
            self._device_low.append(begin)
            self._device_high.append(finish)

    def within(self, windows: list[tuple[float, float]]) -> Iterator[tuple[int, int]]:
        """Offset and length of the blocks with a host event that may touch one of the windows, in order."""
        for offset, length, low, high in zip(self._offset, self._length, self._low, self._high, strict=True):
            if any(low < end and high > start for start, end in windows):
                yield offset, length

    def with_device(self, windows: list[tuple[float, float]]) -> Iterator[tuple[int, int]]:
        """Offset and length of the blocks in which activity of a device may begin in one of the windows, in order."""
        parts = zip(self._device_part[::2], self._device_part[1::2], self._device_low, self._device_high, strict=True)
        for offset, length, low, high in parts:
            if any(low <= end and high >= start for start, end in windows):
                yield offset, length
