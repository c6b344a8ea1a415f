"""Finishing what a program that died could not: its Arrow streams become Parquet files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tracelyze import schema
from tracelyze.analyzers.columns import ParquetPart, StreamPart
from tracelyze.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


def compact_process(folder: Path) -> None:
    """Convert the streams of one process folder to Parquet, file by file, without ever losing a row.

    The Parquet file is written under another name, forced to disk, read back, renamed, and only then is the stream
    deleted: an interruption at any point leaves the stream, or both. Whatever cannot be written stays a stream, which
    the reader understands as well. The caller has made sure that the program no longer writes.
    """
    for stream in sorted(folder.glob(f"*{schema.STREAM_SUFFIX}")):
        try:
            _convert(stream)
        except OSError:  # read-only, full disk, or deleted by another reader
            return


def _convert(stream: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = stream.with_suffix(schema.TABLE_SUFFIX)
    part = StreamPart(stream)
    if not part.schema.names or _holds(target, part.rows):
        if part.schema.names:
            stream.unlink(missing_ok=True)
        return
    scratch = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with pq.ParquetWriter(scratch, part.schema, compression="zstd") as writer:
            for begin in range(0, len(part.batches), 1000):
                table = pa.Table.from_batches(part.batches[begin : begin + 1000], schema=part.schema)
                writer.write_table(table.combine_chunks())
        with scratch.open("rb") as written:
            os.fsync(written.fileno())
        if not _holds(scratch, part.rows):
            return
        scratch.replace(target)
        part.batches.clear()
        stream.unlink(missing_ok=True)
    except pa.ArrowException:
        return
    finally:
        scratch.unlink(missing_ok=True)


def _holds(path: Path, rows: int) -> bool:
    """Whether `path` is a readable Parquet file with at least `rows` rows."""
    if not path.exists():
        return False
    try:
        return ParquetPart(path).rows >= rows
    except InputError:
        return False
