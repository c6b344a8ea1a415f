"""Columns of a table on disk: Parquet parts and Arrow streams, read by projection when they are asked for."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze import reading, schema
from tracelyze.errors import Cause, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from tracelyze.analyzers.recorded.table import Floats, Mask

SMALL = 20_000  # rows: all columns of so few are read faster at once than one by one, and take a few MiB
FRAGMENT = "delete or replace that file, or diagnose a copy of the run directory without it"


class ParquetPart:
    """One Parquet file of a table. Opening it reads the footer only."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self.path = path
        try:
            with reading.open_parquet(path) as file:
                self._metadata = file.metadata
                self.schema: pa.Schema = file.schema_arrow
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(
                Cause.DAMAGED_RUN, f"{path}: not a readable Parquet file ({_first_line(error)}); {FRAGMENT}"
            ) from error
        self.rows = int(self._metadata.num_rows)
        self._file: Any = None
        self._columns: dict[str, Any] = {}

    def column(self, name: str) -> Any:
        """One column. A hundred rules ask for the same few: those of a small file are kept."""
        if name not in self._columns:
            column = reading.decoded_text(self.path, self._read(name))
            if self.rows > SMALL:
                return column
            self._columns[name] = column
        return self._columns[name]

    def forget(self) -> None:
        """Free what was read."""
        self._columns.clear()
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

    def _opened(self) -> Any:
        """The file, whose text stays in its dictionary until it is known how much it is."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        coded = [field.name for field in self.schema if _is_text(field.type)]
        opened = pa.OSFile(str(self.path), "rb")
        return pq.ParquetFile(opened, metadata=self._metadata, read_dictionary=coded, pre_buffer=False)


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
        self.rows = sum(batch.num_rows for batch in self.batches)

    def column(self, name: str) -> Any:
        import pyarrow as pa

        column = pa.chunked_array([batch.column(name) for batch in self.batches], type=self.schema.field(name).type)
        return reading.decoded_text(self.path, column)

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

    def forget(self) -> None:
        """Free what was read; it is read again when it is asked for."""
        self._masks.clear()
        for part in self.parts:
            part.forget()

    def check(self) -> None:
        """InputError if a column is there twice, or has a type that cannot stand for the declared one."""
        for part in self.parts:
            names = part.schema.names
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise InputError(
                    Cause.DAMAGED_RUN,
                    f"{part.path}: has the column {twice} twice: the file was not written by tracelyze; {FRAGMENT}",
                )
            for column in self.spec.columns:
                index = part.schema.get_field_index(column.name)
                if index >= 0 and not _fits(column.type, part.schema.field(index).type):
                    found = part.schema.field(index).type
                    raise InputError(
                        Cause.DAMAGED_RUN,
                        f"{part.path}: column {column.name} is {found}, not {column.type}: the file was not written "
                        f"by tracelyze, or is damaged; {FRAGMENT}",
                    )

    def matches(self, name: str, text: str) -> Mask:
        """Where the text column `name` holds exactly `text`, shape [rows], without making its texts Python's."""
        known = self._masks.get((name, text))
        if known is not None:
            return known
        found = [_matches(part, name, text) for part in self.parts]
        mask = np.concatenate(found) if found else np.zeros(0, dtype=bool)
        if self.rows <= SMALL:
            mask.flags.writeable = False
            self._masks[name, text] = mask
        return mask

    def read(self, name: str) -> tuple[Floats, Mask] | list[str | None]:
        """Column `name`; a part that lacks it (written by an older version) counts as not measured."""
        if self.spec.column(name).type == "string":
            return [value for part in self.parts for value in _text(part, name)]
        if self.rows == 0:
            return _NOTHING
        pieces = [_numbers(part, name) for part in self.parts]
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate([values for values, _ in pieces]), np.concatenate([known for _, known in pieces])


@lru_cache(maxsize=64)
def _all_known(rows: int) -> Mask:
    return np.broadcast_to(np.True_, rows)


_NOTHING = np.zeros(0, dtype=np.float64), np.zeros(0, dtype=bool)


def _matches(part: Part, name: str, text: str) -> Mask:
    import pyarrow as pa
    import pyarrow.compute as pc

    if part.schema.get_field_index(name) < 0:
        return np.zeros(part.rows, dtype=bool)
    same: Any = pc.equal(part.column(name), pa.scalar(text))
    return np.asarray(same.fill_null(False).to_numpy(), dtype=bool)


def _text(part: Part, name: str) -> list[str | None]:
    if part.schema.get_field_index(name) < 0:
        return [None] * part.rows
    return list(part.column(name).to_pylist())


def _numbers(part: Part, name: str) -> tuple[Floats, Mask]:
    """Values as float64 with NaN for nulls, and where they were measured."""
    import pyarrow as pa

    index = part.schema.get_field_index(name)
    if index < 0 or pa.types.is_null(part.schema.field(index).type):
        return _unknown(part.rows)
    column = part.column(name)
    if column.null_count == len(column):
        return _unknown(part.rows)
    known = _all_known(len(column)) if column.null_count == 0 else column.is_valid().to_numpy()
    only = _constant(column) if len(column) > SMALL else None
    if only is not None:
        return np.broadcast_to(np.float64(only), len(column)), _all_known(len(column))
    if column.null_count and pa.types.is_boolean(column.type):
        column = column.cast(pa.float64())  # numpy would get objects; numbers become floats with NaN by themselves
    return np.asarray(column.to_numpy(), dtype=np.float64), np.asarray(known, dtype=bool)


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


def _fits(declared: schema.ColumnType, found: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    if types.is_null(found):
        return True
    if declared == "string":
        return _is_text(found) or (types.is_dictionary(found) and _is_text(found.value_type))
    if declared == "bool":
        return bool(types.is_boolean(found))
    if declared == "float64":
        return bool(types.is_floating(found) or types.is_integer(found))
    return bool(types.is_integer(found))


def _is_text(found: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(found) or pa.types.is_large_string(found))


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
