"""The bytes of a trace file, decompressed on the way, in pieces of bounded size."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from tracelyze.errors import Cause, InputError

GZIP_MAGIC: Final = b"\x1f\x8b"
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

UTF_16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")

LARGEST_TRACE: Final = 64
"""Most GiB of JSON that are read from one file."""

_BLANK: Final = 1 << 12

FREE_EXPANSION: Final = 1 << 30
LARGEST_EXPANSION: Final = 200
"""Beyond FREE_EXPANSION bytes a compressed file may be at most this many times larger when unpacked. Traces are packed
15 to 30 times; deflate itself cannot exceed 1032 times, which only a file made to exhaust its reader comes near."""


@dataclass
class Allowance:
    """What the user allows instead of the limits above: `gib` GiB of JSON, however much smaller the file is."""

    gib: float | None = None


ALLOWED: Final = Allowance()
"""For the whole process: the limits guard its memory and time, whoever calls."""


class TraceBytes:
    """A trace file opened for reading, plain or gzip by its first bytes; the suffix is not trusted.

    `damaged` says why a compressed file ended early, or is empty. Raises InputError where the file cannot be opened,
    or grows beyond the limits above.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.total = 0
        self.damaged = ""
        try:
            if path.exists() and not path.is_file():
                raise InputError(
                    Cause.NOT_A_FILE, f"{path}: not a regular file; give a trace file, or save the stream to one first"
                )
            self._file = path.open("rb")
            head = self._file.read(2)
            self._file.seek(0)
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(
                Cause.of_reading(error), f"{path}: cannot be read ({reason}); give the path of a trace file"
            ) from error
        if not head:
            self._file.close()
            raise InputError(Cause.EMPTY_FILE, f"{path}: the file is empty; export the trace again")
        if head in UTF_16_MARKS:
            self._file.close()
            raise InputError(Cause.NOT_TEXT, f"{path}: is UTF-16 text; convert it with `iconv -f UTF-16 -t UTF-8`")
        self._inflate = zlib.decompressobj(wbits=31) if head == GZIP_MAGIC else None
        self._packed = b""
        self._packed_total = 0

    def __enter__(self) -> TraceBytes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size`; empty at the end."""
        first = self.total == 0
        data = self._file.read(size) if self._inflate is None else self._unpack(size)
        if len(data) >= _BLANK and not data.strip(b"\0"):  # JSON holds no zero byte: nothing was written from here on
            self.damaged = "the file holds nothing but zeros from here on"
            return b""
        self.total += len(data)
        limit = LARGEST_TRACE if ALLOWED.gib is None else ALLOWED.gib
        if self.total > limit * (1 << 30):
            raise InputError(
                Cause.TOO_LARGE,
                f"{self.path}: more than {limit:g} GiB of JSON; profile fewer steps per file, or raise --max-gib",
            )
        return data.removeprefix(BYTE_ORDER_MARK) if first else data

    def skip_to(self, offset: int) -> None:
        """Goes forward, so that the next byte read is the one at `offset` of the JSON."""
        if self._inflate is None:
            self._file.seek(offset)
            self.total = offset
        while self.total < offset and self.read(min(offset - self.total, 1 << 17)):
            pass

    def _unpack(self, size: int) -> bytes:
        inflate = self._inflate
        assert inflate is not None
        while True:
            if inflate.eof:
                rest = (inflate.unused_data or self._file.read(1 << 16)).lstrip(b"\0")
                if not rest.startswith(GZIP_MAGIC):
                    return b""
                self._inflate = inflate = zlib.decompressobj(wbits=31)
                self._packed = rest
            if not self._packed:
                self._packed = self._file.read(1 << 16)
                self._packed_total += len(self._packed)
                if not self._packed:
                    self.damaged = self.damaged or "the compressed file ends early"
                    return inflate.flush() if not inflate.eof else b""
            try:
                data = inflate.decompress(self._packed, size)
            except zlib.error:
                self.damaged = "the compressed file is damaged"
                return b""
            self._packed = inflate.unconsumed_tail
            if data:
                self._refuse_bombs(len(data))
                return data

    def _refuse_bombs(self, more: int) -> None:
        unpacked = self.total + more
        if ALLOWED.gib is None and unpacked > max(FREE_EXPANSION, LARGEST_EXPANSION * self._packed_total):
            raise InputError(
                Cause.IMPLAUSIBLE,
                f"{self.path}: unpacks to more than {LARGEST_EXPANSION} times its size, which no profiler's trace "
                f"does; if you trust it, read it with --max-gib {LARGEST_TRACE}",
            )
