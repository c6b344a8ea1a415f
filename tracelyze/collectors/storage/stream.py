"""Rows on their way to the disk: an Arrow IPC stream while the program runs, Parquet when it has ended.

A Parquet file without its footer cannot be read; an Arrow stream can be read up to its last complete batch, whatever
byte it was cut at. A stream that grows beyond SEGMENT_BYTES is closed, converted, and followed by the next part, so
that a long run becomes a few files and not thousands.
"""

from __future__ import annotations

import io
import os
from array import array
from pathlib import Path
from typing import Any

from tracelyze import schema
from tracelyze.collectors.system.own_file import OwnFile

SEGMENT_BYTES = 48 * 2**20
ROW_GROUP = 50_000  # rows; many small groups make a file slow to read
_CODES = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "float64": "d"}


class Names(tuple[str, ...]):  # noqa: SLOT001  # a tuple's subclasses cannot have any
    """The columns of rows whose values lie one after the other; `common`: those that are the same in all such rows."""

    common: dict[str, Any]

    def __new__(cls, names: tuple[str, ...], common: dict[str, Any]) -> Names:
        """`common` must not be changed any more."""
        made = super().__new__(cls, names)
        made.common = common
        return made


class TableStream:
    """Takes rows from any thread (`append`) and writes them in batches from one (`flush`)."""

    def __init__(self, table: schema.Table) -> None:
        self.table = table
        self.folder: Path | None = None  # rows wait in memory until there is one
        # One list of values, row by row, not a dict per row: dicts of this size come from malloc, and while they wait
        # for the disk they lie between the tensors of the training and keep it from reusing its own memory (1.5 ms a
        # step of page faults, measured on a CNN). A row is the tuple of its columns' names, and then their values.
        # Always the same list, for to extend it is one operation: all of a row is there or nothing, also if an OS
        # signal handler queues another row right then. No lock is needed, which the handler would wait for.
        self._values: list[Any] = []
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._part = 0
        self._file: OwnFile | None = None
        self._encoded = io.BytesIO()  # what Arrow has made of the batch that is being written
        self._writer: Any = None
        self._bytes = 0

    @property
    def size(self) -> int:
        """Bytes in the part that is open."""
        return self._bytes

    def append(self, row: dict[str, Any]) -> None:
        """Queue one row. Columns that it leaves out, or sets to None, are null."""
        names = tuple(row)
        self._values += (self._known.setdefault(names, names), *row.values())

    def append_values(self, values: list[Any]) -> None:
        """Queue one row: its `Names`, and then the values."""
        self._values += values

    def flush(self) -> int:
        """Write what is queued as one batch; returns the number of rows. Raises OSError when the disk refuses."""
        rows = self._encode_queued()
        if rows:
            self._write()
            if self._bytes > SEGMENT_BYTES:
                self.close(convert=True)
                self._part += 1
        return rows

    def close(self, *, convert: bool, mark_end: bool = True) -> None:
        """Write what is queued and end the current part. `convert` makes it Parquet; without, the next reader does so.

        `mark_end=False` saves a write to the disk where nothing is queued: a stream can be read without its end mark.
        """
        self._encode_queued()
        if self._writer is None or self._file is None:
            return
        if mark_end:
            self._writer.close()
        self._write()
        self._file.close()
        self._writer = self._file = None
        self._bytes = 0
        if convert:
            to_parquet(self._path(schema.STREAM_SUFFIX))

    def _encode_queued(self) -> int:
        """Have Arrow encode what is queued as one batch; returns the number of rows."""
        if not self._values or self.folder is None:
            return 0
        values = self._values[:]
        del self._values[: len(values)]  # Other threads may have queued more behind them.
        batch = column_batch(self.table, *columns_of(values))
        if self._writer is None:
            self._open(batch.schema)
        self._writer.write_batch(batch, custom_metadata={schema.CHECKSUM: schema.checksum(batch)})
        self._bytes += batch.nbytes
        return int(batch.num_rows)

    def let_go(self) -> None:
        """Close the open file, into which nothing more is written."""
        if self._file is not None:
            self._file.close()
        self._file = self._writer = None

    def _open(self, arrow_schema: Any) -> None:
        import pyarrow.ipc

        self._file = OwnFile(self._path(schema.STREAM_SUFFIX))
        self._encoded = io.BytesIO()
        self._writer = pyarrow.ipc.new_stream(self._encoded, arrow_schema)

    def _write(self) -> None:
        """Write what Arrow has encoded, all at once: it asks for a write per buffer, which a slow disk turns into
        minutes."""
        encoded = self._encoded.getvalue()
        self._encoded.seek(0)
        self._encoded.truncate()
        if encoded and self._file is not None:
            self._file.write(encoded)

    def _path(self, suffix: str) -> Path:
        assert self.folder is not None
        part = f"-{self._part:05d}" if self._part else ""
        return self.folder / f"{self.table.name}{part}{suffix}"


def columns_of(values: list[Any]) -> tuple[dict[str, list[Any]], int]:
    """The columns of rows that lie one after the other in `values`, each behind a tuple of its columns' names, and how
    many rows there are. None where a row has no such column."""
    columns: dict[str, list[Any]] = {}
    at = rows = 0
    while at < len(values):
        names = values[at]
        width, begin = len(names) + 1, at
        while at < len(values) and values[at] is names:
            at += width
        count = (at - begin) // width
        for index, name in enumerate(names):
            if name not in columns:
                columns[name] = [None] * rows
            columns[name] += values[begin + 1 + index : at : width]
        for name, value in names.common.items() if type(names) is Names else ():
            if name not in columns:
                columns[name] = [None] * rows
            columns[name] += [value] * count
        rows += count
        for column in columns.values():
            column += [None] * (rows - len(column))
    return columns, rows


def record_batch(table: schema.Table, rows: list[dict[str, Any]]) -> Any:
    """Rows as an Arrow record batch; what a row leaves out is null."""
    return column_batch(table, *columns_of([value for row in rows for value in (tuple(row), *row.values())]))


def column_batch(table: schema.Table, values: dict[str, list[Any]], rows: int) -> Any:
    """These columns of `rows` rows as an Arrow record batch: None is null, and so is a column that is missing.

    Built from buffers of the standard library: `pyarrow.array` would import pandas into the training process, where
    that takes most of a second and fails at interpreter exit.
    """
    import pyarrow as pa

    nothing = [None] * rows
    columns = [_array(pa, column, values.get(column.name, nothing)) for column in table.columns]
    fields = [pa.field(column.name, _type(pa, column)) for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def to_parquet(stream: Path) -> None:
    """Turn one closed stream into a Parquet file beside it, then delete the stream. Safe to interrupt anywhere."""
    import pyarrow.ipc
    import pyarrow.parquet

    target = stream.with_suffix(schema.TABLE_SUFFIX)
    temporary = target.with_suffix(".tmp")
    encoded = io.BytesIO()  # written at once, for the sake of slow disks; smaller than the stream
    with open(stream, "rb") as source, pyarrow.ipc.open_stream(source) as reader:
        encoding = schema.encoding(stream.stat().st_size)
        with pyarrow.parquet.ParquetWriter(encoded, reader.schema, **encoding) as writer:
            held: list[Any] = []
            for batch in reader:
                held.append(batch)
                if sum(one.num_rows for one in held) >= ROW_GROUP:
                    writer.write_table(pyarrow.Table.from_batches(held))
                    held = []
            if held:
                writer.write_table(pyarrow.Table.from_batches(held))
    with open(temporary, "wb", buffering=0) as written:
        written.write(encoded.getbuffer())
        os.fsync(written.fileno())  # or a power cut could leave the name without the rows, and no stream
    os.replace(temporary, target)
    stream.unlink()


def _type(pa: Any, column: schema.Column) -> Any:
    return pa.bool_() if column.type == "bool" else getattr(pa, column.type)()


def _array(pa: Any, column: schema.Column, values: list[Any]) -> Any:
    kind = _type(pa, column)
    missing = values.count(None)  # runs in C, as all do that is done to every value where that is possible
    if missing == len(values):
        return pa.nulls(len(values), kind)
    validity = pa.py_buffer(_bits([value is not None for value in values])) if missing else None
    if column.type == "bool":
        return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(_bits([bool(v) for v in values]))])
    if column.type == "string":
        encoded = ["" if value is None else str(value) for value in values]
        pieces = [text.encode("utf-8", "replace") for text in encoded]
        offsets = array("i", [0])
        for piece in pieces:
            offsets.append(offsets[-1] + len(piece))
        buffers = [validity, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(pieces))]
        return pa.Array.from_buffers(kind, len(values), buffers)
    if missing:
        values = [0 if value is None else value for value in values]
    try:
        data = array(_CODES[column.type], values)
    except TypeError:  # a float in a column of integers, say
        data = array(_CODES[column.type], map(float if column.type == "float64" else int, values))
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(data.tobytes())])


def _bits(flags: list[bool]) -> bytes:
    packed = bytearray((len(flags) + 7) // 8)
    for index, flag in enumerate(flags):
        if flag:
            packed[index >> 3] |= 1 << (index & 7)
    return bytes(packed)
