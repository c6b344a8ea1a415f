"""The events of a trace, block by block, in bounded memory, whatever the layout of the JSON.

A block is cut where one record seems to end and the next to begin, and decoded in one call. The decoder is the judge
of the cut: cut inside a string or a nested value, the text that is left does not close, and decoding fails; then an
earlier place is tried, and in the end the records are taken one by one (:mod:`salvage`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from tracelyze.analyzers.kineto.reading.events import DECODE_ERRORS, decode_records
from tracelyze.analyzers.kineto.reading.salvage import salvage
from tracelyze.analyzers.kineto.reading.source import TraceBytes
from tracelyze.errors import Cause, InputError

BLOCK: Final = 1 << 17
LARGEST_RECORD: Final = 16 << 20
LARGEST_HEADER: Final = 16 << 20
LARGEST_TAIL: Final = 16 << 20
LARGEST_PROPERTIES: Final = 4 << 20
"""Bytes: of one read, of one event, of everything before the events, of everything behind them, of what is kept of
these two."""

MOST_LOST: Final = 20_000
"""Unreadable events after which a file that holds more of them than of others is given up."""

_DEEPEST: Final = 1000
_CUTS_TRIED: Final = 4
# Never steps back, for which the matcher would keep a hundred bytes per character: a text may be megabytes long.
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]|"', re.DOTALL)
_FIRST_BREAK: Final = re.compile(rb"\}\s*,\s*\{\s*\"")
_SPACE: Final = b" \t\r\n"
_CLOSING: Final = ord("]")


class TraceRecords:
    """Iterates over lists of decoded events. Afterwards the attributes say what else the file held.

    `properties`: the keys beside `traceEvents`. `truncated`: why the events end before the array does, or empty.
    `repaired` and `lost`: records that were put right, and that could not be read. While iterating, `place` is where
    the events just given stand in the file: offset and length in bytes of JSON.
    Raises InputError if the file is no Kineto trace.
    """

    def __init__(self, source: TraceBytes) -> None:
        self._source = source
        self.properties: dict[str, Any] = {}
        self.truncated = ""
        self.repaired = 0
        self.lost = 0
        self.place = (0, 0)

    def __iter__(self) -> Iterator[list[Any]]:
        buffer = self._open()
        separator = _separator(buffer)
        size, final, read = BLOCK, False, 0
        block = bytearray(b"[" + buffer)  # with the bracket that a decoder wants, so that it is decoded where it lies
        while True:
            if not final:
                more = self._source.read(size)
                final = not more
                block += more
            events, used = _decode_prefix(block, separator)
            if used:
                read += len(events)
                self.place = (self._source.total - len(block) + 1, used - 1)
                yield events
                block = bytearray(b"[" + block[used:].lstrip(b", \t\r\n"))
                size = BLOCK
                continue
            buffer = bytes(block[1:])
            found = salvage(buffer, final)
            self.repaired += found.repaired
            self.lost += found.lost
            read += len(found.events)
            if found.events:
                self.place = (self._source.total - len(buffer), found.consumed)
                yield found.events
            buffer = buffer[found.consumed :]
            block = bytearray(b"[" + buffer)
            if found.ended:
                self._close(buffer)
                return
            if self.lost > max(MOST_LOST, read):
                self.truncated = f"more than {MOST_LOST:,} events could not be read, and nothing behind them was tried"
                return
            if final:
                self.truncated = self._source.damaged or "the file ends in the middle of its events"
                return
            if found.consumed:
                size = BLOCK
            elif len(buffer) > LARGEST_RECORD:
                self.truncated = f"one event is larger than {LARGEST_RECORD >> 20} MiB, and nothing behind it was read"
                return
            else:
                size = max(BLOCK, len(buffer))

    def _open(self) -> bytes:
        """Reads up to the first event; returns what was read beyond it."""
        buffer = self._source.read(BLOCK)
        if not buffer.strip():
            reason = self._source.damaged or "it is blank"
            raise InputError(
                Cause.DAMAGED_TRACE,
                f"{self._source.path}: nothing in it can be read ({reason}); export the trace again",
            )
        if buffer.lstrip()[:1] == b"[":
            return buffer[buffer.index(b"[") + 1 :]
        if buffer.lstrip()[:1] != b"{":
            raise InputError(
                Cause.NOT_A_TRACE,
                f"{self._source.path}: not JSON, so not a Kineto trace; give a profiler's .json or .json.gz, or a "
                "run directory; unpack a log that is packed with gzip",
            )
        while True:
            place = _events_at(buffer)
            if place is not None:
                key, start = place
                if key < 0:
                    raise InputError(
                        Cause.NOT_A_TRACE,
                        f"{self._source.path}: has no key traceEvents, so it is not a Kineto trace; export one with "
                        "torch.profiler's export_chrome_trace (a log is read by `tracelyze import log`)",
                    )
                self._add_properties(buffer[:key].rstrip().rstrip(b",") + b"}")
                return buffer[start + 1 :]
            more = self._source.read(max(BLOCK, len(buffer)))
            if not more or len(buffer) > LARGEST_HEADER:
                raise InputError(
                    Cause.DAMAGED_TRACE,
                    f"{self._source.path}: no key traceEvents in what can be read of it "
                    f"({self._source.damaged or 'the file is cut short or is no Kineto trace'}); export the trace "
                    "again",
                )
            buffer += more

    def _close(self, tail: bytes) -> None:
        """Reads what stands behind the events, if it is of reasonable size."""
        while len(tail) <= LARGEST_TAIL:
            more = self._source.read(BLOCK)
            if not more:
                break
            tail += more
        tail = tail.strip(b"\0" + _SPACE)
        if tail.startswith(b","):
            self._add_properties(b"{" + tail[1:])

    def _add_properties(self, text: bytes) -> None:
        if len(text) > LARGEST_PROPERTIES:
            return
        try:
            found, _ = json.JSONDecoder(strict=False).raw_decode(text.decode("utf-8", "replace").lstrip())
        except (ValueError, RecursionError):
            return
        if isinstance(found, dict):
            self.properties |= found


def _events_at(text: bytes) -> tuple[int, int] | None:
    """Positions of the key `traceEvents` of the outermost object and of its bracket; (-1, -1) if the object has none.

    None if the text ends before that is decided.
    """
    depth = 0
    key, key_start, key_end = b"", 0, 0
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark == b'"':
            return None
        if mark[:1] == b'"':
            if depth == 1:
                key, key_start, key_end = mark, token.start(), token.end()
        elif mark in (b"{", b"["):
            if (
                depth == 1
                and mark == b"["
                and key == b'"traceEvents"'
                and text[key_end : token.start()].strip() == b":"
            ):
                return key_start, token.start()
            depth += 1
            if depth > _DEEPEST:
                return -1, -1
        else:
            depth -= 1
            if depth == 0:
                return -1, -1
    return None


def _separator(text: bytes) -> bytes:
    """What stands between two records of this file, learned from the first place that looks like it."""
    found = _FIRST_BREAK.search(text)
    return found.group() if found else b'},{"'


def _decode_prefix(block: bytearray, separator: bytes) -> tuple[list[Any], int]:
    """Events of the longest prefix that ends where a record ends, and its length; 0 if no guess was right.

    `block` begins with a bracket. The one that closes it replaces the byte behind the record while it is parsed.
    """
    end = len(block)
    for _ in range(_CUTS_TRIED):
        cut = block.rfind(separator, 0, end)
        if cut < 0:
            cut = _other_break(block, end)
        if cut < 0:
            break
        behind, block[cut + 1] = block[cut + 1], _CLOSING
        try:
            with memoryview(block) as view, view[: cut + 2] as prefix:
                return decode_records(prefix), cut + 1
        except DECODE_ERRORS:
            end = cut
        finally:
            block[cut + 1] = behind
    return [], 0


def _other_break(text: bytearray, end: int) -> int:
    """The last `}` before `end` that is followed by a comma and an opening brace, in any spacing; -1 if none."""
    for _ in range(64):
        brace = text.rfind(b"{", 0, end)
        if brace < 0:
            return -1
        before = text[max(0, brace - 256) : brace].rstrip(_SPACE)
        if before.endswith(b","):
            before = before[:-1].rstrip(_SPACE)
            if before.endswith(b"}"):
                return max(0, brace - 256) + len(before) - 1
        end = brace
    return -1
