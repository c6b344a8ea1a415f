"""Reading other programs' files: never more than a bound, never anything but text and numbers, errors in one line."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from tracelyze import reading
from tracelyze.errors import Cause, InputError
from tracelyze.formatting import size
from tracelyze.importing import columns

LARGEST = 2**29  # bytes of a file that is read as a whole: its rows take several times as much memory
LONGEST_LINE = 2**20  # characters of a line that is looked at; the rest of it is passed over
HEAD = 64 * 2**10  # bytes by which a format is recognised
_DEEPEST = 5  # objects within objects of a record whose numbers are looked at
PACKED: Final = b"\x1f\x8b"  # how a file begins that gzip packed
Numbers = dict[str, float | None]

_ABSENT = frozenset(("", "none", "null", "na", "n/a", "-"))
_COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def text_of(file: Path) -> str:
    """The text of a file that is read as a whole. InputError if it is too large, no text, or cannot be read."""
    try:
        if file.stat().st_size > LARGEST:
            raise InputError(
                Cause.TOO_LARGE, f"{file}: larger than {size(LARGEST)}; keep step, loss, grad_norm, lr only"
            )
        with open_text(file) as stream:
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise InputError(
                Cause.TOO_LARGE, f"{file}: unpacks to more than {size(LARGEST)}; keep step, loss, grad_norm, lr only"
            )
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(
            Cause.NOT_TEXT, f"{file}: not a text file; give a log as text, JSON, JSON lines or CSV"
        ) from None
    except OSError as error:
        raise InputError(Cause.of_reading(error), f"{file}: {error.strerror}; give the path of a log") from None
    if not text.strip():
        raise InputError(Cause.EMPTY_FILE, f"{file}: is empty; give the log of a training that has made steps")
    return text


def lines_of(file: Path) -> Iterator[str]:
    """The lines of a console log without colors, one after the other; what overwrites itself (progress) as lines."""
    try:
        with io.TextIOWrapper(open_text(file), encoding="utf-8", errors="replace") as stream:
            while (line := stream.readline(LONGEST_LINE)).strip("\0"):  # zeros: nothing was written from here on
                for part in line.rstrip("\r\n").split("\r"):
                    yield _COLORS.sub("", part) if "\x1b" in part else part
    except OSError as error:
        raise InputError(Cause.of_reading(error), f"{file}: {error.strerror}; give the path of a log") from None


def numbered_lines_of(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a log with their numbers as an editor counts them, without colors: progress bars count as one."""
    try:
        with io.TextIOWrapper(open_text(file), encoding="utf-8", errors="replace", newline="\n") as stream:
            number, begun = 0, False
            while (line := stream.readline(LONGEST_LINE)).strip("\0"):
                number += not begun
                begun = not line.endswith("\n")
                for part in line.rstrip("\r\n").split("\r"):
                    yield number, _COLORS.sub("", part) if "\x1b" in part else part
    except OSError as error:
        raise InputError(Cause.of_reading(error), f"{file}: {error.strerror}; give the path of a log") from None


def open_text(file: Path) -> IO[bytes]:
    """A text file opened for reading; one that gzip packed is unpacked on the way, up to where it is cut off."""
    stream = reading.open_file(file)
    packed = stream.read(2) == PACKED
    stream.seek(0)
    return io.BufferedReader(_Unpacked(stream)) if packed else stream


class _Unpacked(io.RawIOBase):
    """What gzip packed into a file, at most LARGEST bytes of it; damage, or a missing end, is its end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._unpacked = gzip.GzipFile(fileobj=stream)
        self._left = LARGEST + 1

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._unpacked.read1(min(len(buffer), self._left))
        except (EOFError, gzip.BadGzipFile, zlib.error):
            return 0
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


def without_colors(text: str) -> str:
    """The text as it is seen on a terminal without colors."""
    return _COLORS.sub("", text)


def head_of(file: Path) -> bytes:
    """The first bytes of a file, by which its format is recognised; empty if it is none or cannot be read.

    Of a text that gzip packed, those of the text.
    """
    try:
        head = reading.read_start(file, HEAD)
        if head.startswith(PACKED):
            with open_text(file) as stream:
                text = stream.read(HEAD)
            return head if b"\0" in text else text
        return head
    except (OSError, InputError):
        return b""


def number(text: str) -> float | None:
    """The number in a text as logs write them (`1,234`, `NaN`, `inf`), None if there is none."""
    try:
        return float(text.replace(",", "").replace("_", "").strip())
    except ValueError:
        return None


def numbers(file: Path, where: str, record: dict[str, Any]) -> Numbers:
    """The numbers of a record by name, nested objects as `outer/inner`.

    Text that is no number becomes None, but InputError where a loss or another known column must hold a number.
    """
    found: Numbers = {}
    for name, value in _flat(record):
        if value is None or (isinstance(value, str) and value.strip().lower() in _ABSENT):
            found[name] = None
        elif isinstance(value, int | float):
            found[name] = _finite_integer(value)
        elif isinstance(value, str):
            try:
                found[name] = float(value)
            except ValueError:
                if columns.known([name]):
                    raise InputError(
                        Cause.DAMAGED_LOG, f"{file}: {where}: {name} is {value[:40]!r}, not a number"
                    ) from None
                found[name] = None
    return found


def _finite_integer(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return float("inf") if value > 0 else float("-inf")


def _flat(record: dict[str, Any], depth: int = 0) -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for name, value in record.items():
        if isinstance(value, dict) and depth < _DEEPEST:
            flat += [(f"{name}/{inner}", item) for inner, item in _flat(value, depth + 1)]
        else:
            flat.append((str(name), value))
    return flat
