"""The one door through which files are read, with limits: what they are, how large, how deep, how well packed.

A run directory may come from anywhere. Whoever reads a file of it opens it here, so that a pipe, a device, a sparse
file of gigabytes, a thousand nested lists or a small file that unpacks to more than the machine holds cost one line.
InputError says what was refused and what to do; OSError is left to the caller, who knows whether a file may be absent.

Importing this module imports nothing but the standard library.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from tracelyze.errors import Cause, InputError
from tracelyze.formatting import size

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MANIFEST_BYTES: Final = 16 << 20
"""Largest JSON manifest or configuration: real ones have some KiB, and a command line ends at 2 MiB (Linux ARG_MAX)."""

NOTE_BYTES: Final = 1 << 20
"""Most that is read of a file that people read, such as the stacks of a fatal signal: ten threads make 20 KiB."""

DEEPEST_JSON: Final = 64
"""Levels of nesting: manifests have four, logs two."""

LONGEST_INTEGER: Final = 18
"""Digits of the longest integer that 64 bits always hold; longer ones are read as floating point, as Arrow has it."""

FREE_ROWS: Final = 1_000_000
ROWS_PER_BYTE: Final = 100
"""Beyond FREE_ROWS a table may have so many rows for each byte of its file. The steps of a recorded run, whose times
differ, take 10 to 100 bytes a row; only a file that repeats one value without end packs rows so well."""

FREE_BYTES: Final = 256 << 20
EXPANSION: Final = 200
"""Beyond FREE_BYTES the pages of a file may unpack to at most so many times its size. Recorded tables do so 2 to 20
times, text in Zstandard at most 50 times."""

_DICTIONARY_BATCH: Final = 2
_RECORD_BATCH: Final = 3

COPY: Final = "give an undamaged copy of it, or delete it to read the rest without it"


def open_file(path: Path) -> IO[bytes]:
    """The regular file `path`, opened for reading. InputError for a folder, pipe, socket or device; else OSError."""
    check_regular(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # not to wait for a pipe made meanwhile
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise InputError(Cause.NOT_A_FILE, f"{path}: not a regular file; {COPY}")
    return file


def check_regular(path: Path) -> None:
    """InputError unless `path` is a regular file, or a link to one; OSError if it cannot be asked."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    kind = next((name for is_kind, name in kinds if is_kind(mode)), "something else")
    raise InputError(Cause.NOT_A_FILE, f"{path}: {kind}, not a regular file; {COPY}")


def read_bytes(path: Path, limit: int) -> bytes:
    """All of the file. InputError where it holds more than `limit` bytes, whether it says so or only turns out to."""
    with open_file(path) as file:
        length = os.fstat(file.fileno()).st_size
        data = b"" if length > limit else file.read(limit + 1)
    if max(length, len(data)) > limit:
        raise InputError(
            Cause.TOO_LARGE, f"{path}: has {size(max(length, len(data)))}, at most {size(limit)} are read; {COPY}"
        )
    return data


def read_start(path: Path, limit: int = NOTE_BYTES) -> bytes:
    """The first bytes of the file, at most `limit`."""
    with open_file(path) as file:
        return file.read(limit)


def read_text(path: Path, limit: int = MANIFEST_BYTES, encoding: str = "utf-8") -> str:
    """All of the file as text; UnicodeDecodeError, a ValueError, where it is none."""
    return read_bytes(path, limit).decode(encoding)


def parse_json(text: str, deepest: int = DEEPEST_JSON) -> Any:
    """The JSON value in `text`. ValueError, which says why, for anything that is none or is nested deeper than that.

    Integers of more than 64 bits become floating point, in doubt infinite; halves of surrogate pairs become "?", so
    that every text can be written again.
    """
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError(f"nested deeper than {deepest} levels") from None
    _check_nesting(value, deepest)
    return value if _ESCAPED_SURROGATE.search(text) is None else _writable(value)


def parse_object(text: str | None) -> dict[str, Any]:
    """The JSON object in a text of a table; empty for anything else."""
    try:
        value = parse_json(text or "")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def open_parquet(path: Path, coded: list[str] | None = None) -> pq.ParquetFile:
    """The Parquet file `path`, its footer read and its decoded size known to be bearable.

    `coded`: columns whose text is to stay in its dictionary, if the file has all of them.

    Raises what `unreadable` lists where it is none.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_regular(path)
    opened = pa.OSFile(str(path), "rb")
    length = opened.size()
    try:
        file = pq.ParquetFile(opened, read_dictionary=coded, pre_buffer=False)
    except KeyError:
        file = pq.ParquetFile(opened, pre_buffer=False)
    try:
        metadata = file.metadata
        check_rows(path, metadata.num_rows, length)
        groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
        unpacked = sum(max(group.total_byte_size, 0) for group in groups)
        if unpacked > max(FREE_BYTES, EXPANSION * length):
            raise InputError(
                Cause.IMPLAUSIBLE, f"{path}: unpacks to {size(unpacked)}, {EXPANSION} times its size or more; {COPY}"
            )
    except BaseException:
        file.close()
        raise
    return file


def unreadable() -> tuple[type[Exception], ...]:
    """What reading a damaged Parquet file may raise: pyarrow's errors derive from several of Python's classes, and some
    from none of them."""
    import pyarrow as pa

    return OSError, ValueError, KeyError, TypeError, IndexError, pa.ArrowException


def check_rows(path: Path, rows: int, length: int) -> None:
    """InputError where a table has more rows than a file of `length` bytes can honestly hold."""
    if rows > max(FREE_ROWS, ROWS_PER_BYTE * length):
        raise InputError(
            Cause.IMPLAUSIBLE, f"{path}: claims {rows:,} rows in {size(length)}, which no recording does; {COPY}"
        )


def texts(path: Path, column: pa.ChunkedArray[Any]) -> list[str | None]:
    """A column of text as a list, in which a word of a dictionary is one object. InputError as of `decoded_text`."""
    found: list[str | None] = []
    chunks: Any = column.chunks
    for chunk in chunks:
        if not hasattr(chunk, "dictionary"):
            found += _words(chunk)
            continue
        words = _words(chunk.dictionary)
        if len(chunk) * sum(len(word or "") for word in words) > FREE_BYTES:
            _check_text(path, column)
        found += [None if code is None else words[code] for code in chunk.indices.to_pylist()]
    return found


def _words(column: Any) -> list[str | None]:
    """Texts of an array. Bytes of a damaged file that are no UTF-8 become U+FFFD."""
    import pyarrow as pa

    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        kept = column.cast(pa.binary()).to_pylist()
        return [None if one is None else one.decode("utf-8", "replace") for one in kept]


def decoded_text(path: Path, column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """A column of dictionary codes as plain text. InputError where the repeated words would be more than FREE_BYTES.

    A dictionary holds each word once, so a small file can stand for any amount of text.
    """
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return column
    _check_text(path, column)
    return column.cast(pa.string())


def _check_text(path: Path, column: pa.ChunkedArray[Any]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    chunks: Any = column.chunks
    total = sum(len(chunk) * chunk.dictionary.nbytes for chunk in chunks)  # At most: were each row all of the words.
    if total > FREE_BYTES:
        total = 0
        for chunk in chunks:
            if len(chunk) and len(chunk.dictionary):
                lengths: Any = pc.binary_length(chunk.dictionary)
                total += pc.sum(lengths.cast(pa.int64()).take(chunk.indices.cast(pa.int64()))).as_py() or 0
    if total > FREE_BYTES:
        raise InputError(
            Cause.IMPLAUSIBLE,
            f"{path}: a column of text unpacks to {size(total)}, at most {size(FREE_BYTES)} are read; {COPY}",
        )


def stream_batches(path: Path) -> Iterator[Any]:
    """Record batches of an Arrow IPC stream, with the metadata of each, mapped into memory.

    InputError for what is no regular file, claims too many rows, or is compressed, which tracelyze's streams never are:
    what a compressed batch unpacks to cannot be known before. Whatever else is wrong raises what pyarrow raises.
    """
    import pyarrow as pa

    check_regular(path)
    length = path.stat().st_size  # not later: another reader may delete the file, and what is mapped is still whole
    if length == 0:
        return
    _refuse_compression(path)
    rows = 0
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
        while True:
            try:
                batch, noted = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            rows += batch.num_rows
            check_rows(path, rows, length)
            yield batch, noted


def finite(value: Any) -> float | None:
    """`value` as a number, if it is a finite one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except (OverflowError, ValueError):  # an integer beyond all floating point numbers
        return None


def _refuse_compression(path: Path) -> None:
    """InputError if a message of an Arrow stream is compressed. What else is wrong with it is left to the reader."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        try:
            for message in pa.ipc.MessageReader.open_stream(file):
                if _is_compressed(message.metadata.to_pybytes()):
                    raise InputError(
                        Cause.IMPLAUSIBLE, f"{path}: a compressed stream, which tracelyze does not write; {COPY}"
                    )
        except (pa.ArrowException, OSError, ValueError, struct.error):
            return


def _is_compressed(metadata: bytes) -> bool:
    """Whether the flatbuffer of an Arrow message (Message.fbs of the Arrow format) names a compression of its body.

    pyarrow decodes these headers but does not show them, and decompresses while it reads.
    """
    (root,) = struct.unpack_from("<I", metadata, 0)
    kind = _field(metadata, root, 1)  # Message: version, header_type, header, bodyLength
    header = _table(metadata, root, 2)
    if kind is None or header is None:
        return False
    if metadata[kind] == _DICTIONARY_BATCH:
        header = _table(metadata, header, 1)  # DictionaryBatch: id, data
    elif metadata[kind] != _RECORD_BATCH:
        return False
    # RecordBatch: length, nodes, buffers, compression
    return header is not None and _field(metadata, header, 3) is not None


def _field(data: bytes, table: int, number: int) -> int | None:
    """Where a field of a flatbuffer's table lies; None if it is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    (length,) = struct.unpack_from("<H", data, vtable)
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", data, vtable + at)[0] if at + 2 <= length else 0
    return table + offset if offset else None


def _table(data: bytes, table: int, number: int) -> int | None:
    """Where the table begins that a field refers to; None if it is absent."""
    at = _field(data, table, number)
    return None if at is None else at + int(struct.unpack_from("<I", data, at)[0])


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= LONGEST_INTEGER else float(digits)


_DECODER: Final = json.JSONDecoder(parse_int=_integer)


_ESCAPED_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Text that was decoded strictly holds a half of a surrogate pair only where it is escaped."""


def _check_nesting(value: Any, deepest: int) -> None:
    """ValueError if lists and dictionaries lie within each other on more than `deepest` levels."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(deepest):
        level = [
            item
            for outer in level
            for item in (outer.values() if type(outer) is dict else outer)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return
    raise ValueError("nested too deep")


def _writable(value: Any) -> Any:
    """The value with "?" in the place of every half of a surrogate pair."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_writable(item) for item in value]
    return {_writable(name): _writable(item) for name, item in value.items()} if isinstance(value, dict) else value
