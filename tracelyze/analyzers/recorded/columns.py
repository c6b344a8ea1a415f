"""Columns of a table on disk: Parquet parts and Arrow streams, read by projection when they are asked for."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze import reading, schema
from tracelyze.errors import Cause, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from tracelyze.analyzers.recorded.table import Floats, Mask

SMALL = 20_000  # rows: the columns of so few are kept, since a hundred rules ask for the same ones
SMALL_FILE = 1 << 20  # bytes: the columns of so small a file are read together, which takes two thirds of the time
FRAGMENT = "delete or replace that file, or diagnose a copy of the run directory without it"


class ParquetPart:
    """One Parquet file of a table. Opening it reads the footer only."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self.path = path
        try:
            file = reading.open_parquet(path, _declared_texts(path.stem))
            self._metadata = file.metadata
            self.schema: pa.Schema = file.schema_arrow
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(
                Cause.DAMAGED_RUN, f"{path}: not a readable Parquet file ({_first_line(error)}); {FRAGMENT}"
            ) from error
        self.names = frozenset(self.schema.names)
        self.rows = int(self._metadata.num_rows)
        self._file: Any = file
        self._whole: dict[str, Any] | None = None  # all columns, where they are small enough to be read at once
        self._one_by_one = self.rows > SMALL
        plain, self._coded = _texts(self.schema)
        if plain:
            self.forget()

    def column(self, name: str) -> Any:
        """One column, text as it is stored: a dictionary of words and codes."""
        if self._whole is None and not self._one_by_one:
            self._read_whole()
        return self._whole[name] if self._whole is not None else self._read(name)

    def forget(self) -> None:
        """Free what was read."""
        self._whole = None
        if self._file is not None:
            self._file.close(force=True)
            self._file = None

    def _read(self, name: str) -> Any:
        import pyarrow as pa

        try:
            self._file = self._file or self._opened()
            return self._file.read(columns=[name], use_threads=False).column(0)
        except (pa.ArrowException, OSError, ValueError) as error:
            what, reason = f"column {name}", _first_line(error)
            raise InputError(Cause.DAMAGED_RUN, f"{self.path}: {what} cannot be read ({reason}); {FRAGMENT}") from error

    def _read_whole(self) -> None:
        """All columns at once if the file is small and none of them is damaged."""
        import pyarrow as pa

        self._one_by_one = True
        try:
            if self.path.stat().st_size <= SMALL_FILE:
                table = (self._file or self._opened()).read(use_threads=False)
                self.forget()
                self._whole = dict(zip(self.schema.names, table.columns, strict=True))
                self._one_by_one = False
        except (pa.ArrowException, OSError, ValueError):
            return  # the columns that are asked for may be whole

    def _opened(self) -> Any:
        """The file, whose text stays in its dictionary."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        opened = pa.OSFile(str(self.path), "rb")
        return pq.ParquetFile(opened, metadata=self._metadata, read_dictionary=self._coded, pre_buffer=False)


def complete_batches(path: Path) -> Iterator[Any]:
    """Record batches of an Arrow stream up to the last one that is whole; what follows was never finished."""
    import pyarrow as pa

    try:
        for batch, noted in reading.stream_batches(path):
            batch.validate(full=True)
            if noted and noted.get(schema.CHECKSUM, b"") not in (b"", schema.checksum(batch)):
                return  # its length reached the disk before a power cut, its values did not
            yield batch
    except (pa.ArrowException, OSError, ValueError):
        return  # what the program was writing when it died


class StreamPart:
    """One Arrow IPC stream of a table: the rows that were complete when the program stopped writing.

    The file is mapped into memory, so that only the columns that are used are read.
    """

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self.path = path
        self.batches: list[Any] = list(complete_batches(path))
        self.schema: pa.Schema = self.batches[0].schema if self.batches else pa.schema([])
        self.names = frozenset(self.schema.names)
        self.rows = sum(batch.num_rows for batch in self.batches)

    def column(self, name: str) -> Any:
        import pyarrow as pa

        return pa.chunked_array([batch.column(name) for batch in self.batches], type=self.schema.field(name).type)

    def forget(self) -> None:
        """Nothing was read: the file is mapped."""


Part = ParquetPart | StreamPart


class FileColumns:
    """A table's columns in one or several files, in the order of their parts. Implements :class:`run.Columns`."""

    def __init__(self, spec: schema.Table, parts: Sequence[Part]) -> None:
        self.spec = spec
        self.parts = parts
        self.rows = sum(part.rows for part in parts)
        self._masks: dict[tuple[str, str], Mask] = {}
        self._texts: dict[str, list[str | None]] = {}

    def forget(self) -> None:
        """Free what was read; it is read again when it is asked for."""
        self._masks.clear()
        self._texts.clear()
        for part in self.parts:
            part.forget()

    def check(self) -> None:
        """InputError if a column is there twice, or has a type that cannot stand for the declared one."""
        for part in self.parts:
            fault = _fault(self.spec.name, part.schema)
            if fault:
                raise InputError(Cause.DAMAGED_RUN, f"{part.path}: {fault}; {FRAGMENT}")

    def matches(self, name: str, text: str) -> Mask:
        """Where the text column `name` holds exactly `text`, shape [rows], without making its texts Python's."""
        known = self._masks.get((name, text))
        if known is not None:
            return known
        if self.rows <= SMALL:
            mask = np.array([value == text for value in self._text(name)], dtype=bool)
            mask.flags.writeable = False
            self._masks[name, text] = mask
            return mask
        return np.concatenate([_matches(part, name, text) for part in self.parts])

    def read(self, name: str) -> tuple[Floats, Mask] | list[str | None]:
        """Column `name`; a part that lacks it (written by an older version) counts as not measured."""
        if self.spec.column(name).type == "string":
            return self._text(name)
        if self.rows == 0:
            return _NOTHING
        pieces = [_numbers(part, name) for part in self.parts]
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate([values for values, _ in pieces]), np.concatenate([known for _, known in pieces])

    def _text(self, name: str) -> list[str | None]:
        if name in self._texts:
            return self._texts[name]
        pieces = [_text(part, name) for part in self.parts]
        values = pieces[0] if len(pieces) == 1 else list(chain.from_iterable(pieces))
        if self.rows <= SMALL:
            self._texts[name] = values
        return values


@lru_cache(maxsize=64)
def _all_known(rows: int) -> Mask:
    return np.broadcast_to(np.True_, rows)


_NOTHING = np.zeros(0, dtype=np.float64), np.zeros(0, dtype=bool)


def _matches(part: Part, name: str, text: str) -> Mask:
    import pyarrow as pa
    import pyarrow.compute as pc

    if name not in part.names:
        return np.zeros(part.rows, dtype=bool)
    same: Any = pc.equal(reading.decoded_text(part.path, part.column(name)), pa.scalar(text))
    return _mask(same.fill_null(False))


def _text(part: Part, name: str) -> list[str | None]:
    if name not in part.names:
        return [None] * part.rows
    return reading.texts(part.path, part.column(name))


def _numbers(part: Part, name: str) -> tuple[Floats, Mask]:
    """Values as float64 with NaN for nulls, and where they were measured."""
    import pyarrow as pa

    if name not in part.names:
        return _unknown(part.rows)
    column = part.column(name)
    if column.null_count == len(column):
        return _unknown(part.rows)
    known = _all_known(len(column)) if column.null_count == 0 else _mask(column.is_valid())
    only = _constant(column) if len(column) > SMALL else None
    if only is not None:
        return np.broadcast_to(np.float64(only), len(column)), _all_known(len(column))
    numbers = column if column.type == pa.float64() else column.cast(pa.float64(), safe=False)
    values = _array(numbers)
    return np.where(known, values, np.nan) if column.null_count else values, np.asarray(known, dtype=bool)


def _mask(column: Any) -> Mask:
    """A column of known booleans."""
    import pyarrow as pa

    return np.asarray(_array(column.cast(pa.uint8())).view(bool))


def _array(column: Any) -> np.ndarray[Any, Any]:
    """A column of numbers, with any number where none is known. `to_numpy` would import pandas, which takes 0.3 s."""
    kind = np.dtype(str(column.type).replace("double", "float64"))
    chunks = [
        np.frombuffer(chunk.buffers()[1], kind, len(chunk), chunk.offset * kind.itemsize)
        for chunk in column.chunks
        if len(chunk)
    ]
    return chunks[0] if len(chunks) == 1 else np.concatenate([np.empty(0, kind), *chunks])


def _constant(column: Any) -> float | None:
    """The value of a column that never changes: kept once, since a long run has many such columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count or len(column) == 0:
        return None
    low, high = pc.min(column).as_py(), pc.max(column).as_py()
    same = low == high and low is not None  # NaN is not among them: look for it
    if not same or (pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py()):
        return None
    return float(low)


@lru_cache(maxsize=64)
def _unknown(rows: int) -> tuple[Floats, Mask]:
    """A column that was not measured. Broadcast views: they cost no memory whatever the number of rows."""
    return np.broadcast_to(np.float64("nan"), rows), np.broadcast_to(np.False_, rows)


@lru_cache
def _declared_texts(table: str) -> list[str]:
    """The columns of text that a table declares: a file that has all of them is opened only once."""
    columns = [column for one in schema.TABLES if one.name == table for column in one.columns]
    return [column.name for column in columns if column.type == "string"]


@lru_cache(maxsize=256)
def _texts(found: pa.Schema) -> tuple[bool, list[str]]:
    """Whether there is text that would not be left in its dictionary, and all columns of text."""
    plain = [field.name for field in found if _is_text(field.type)]
    return bool(plain), [*plain, *(field.name for field in found if _is_coded(field.type))]


@lru_cache(maxsize=256)
def _fault(table: str, found: pa.Schema) -> str:
    """What keeps columns from being those of the table of this name; empty if they are."""
    twice = next((name for name in found.names if found.names.count(name) > 1), None)
    if twice is not None:
        return f"has the column {twice} twice: the file was not written by tracelyze"
    for column in schema.table(table).columns:
        index = found.get_field_index(column.name)
        if index >= 0 and not _fits(column.type, found.field(index).type):
            return (
                f"column {column.name} is {found.field(index).type}, not {column.type}: the file was not written by "
                "tracelyze, or is damaged"
            )
    return ""


def _fits(declared: schema.ColumnType, found: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    if types.is_null(found):
        return True
    if declared == "string":
        return _is_text(found) or _is_coded(found)
    if declared == "bool":
        return bool(types.is_boolean(found))
    if declared == "float64":
        return bool(types.is_floating(found) or types.is_integer(found))
    return bool(types.is_integer(found))


def _is_text(found: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(found) or pa.types.is_large_string(found))


def _is_coded(found: pa.DataType) -> bool:
    import pyarrow as pa

    return isinstance(found, pa.DictionaryType) and _is_text(found.value_type)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
