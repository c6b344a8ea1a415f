"""Finishing what a program that died could not: its Arrow streams become Parquet files."""

from __future__ import annotations

import os
from pathlib import Path

from tracelyze import schema
from tracelyze.analyzers.recorded.columns import ParquetPart, complete_batches
from tracelyze.errors import InputError

ROW_GROUP = 50_000  # rows: some MiB of the widest table, so that a reader can skip the others


def compact_process(folder: Path) -> None:
    """Convert the streams of one process folder to Parquet, file by file, without ever losing a row.

    The Parquet file is written under another name, forced to disk, read back, renamed, and only then is the stream
    deleted: an interruption at any point leaves the stream, or both. Whatever cannot be written stays a stream, which
    the reader understands as well. The caller has made sure that the program no longer writes.
    """
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries)
    for scratch in (name for name in names if name.startswith(".") and name.endswith(".partial")):
        if not Path(f"/proc/{scratch.split('.')[-2]}").exists():  # its reader was interrupted
            (folder / scratch).unlink(missing_ok=True)
    for stream in (name for name in names if name.endswith(schema.STREAM_SUFFIX)):
        try:
            _convert(folder / stream)
        except (OSError, InputError):  # read-only, full disk, deleted by another reader, or no stream of ours
            return


def _convert(stream: Path) -> None:
    import pyarrow as pa

    target = stream.with_suffix(schema.TABLE_SUFFIX)
    rows = sum(batch.num_rows for batch in complete_batches(stream))
    if rows == 0:
        return
    if _holds(target, rows):  # converted before, but the stream was not deleted any more
        stream.unlink(missing_ok=True)
        return
    scratch = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        _write(stream, scratch)
        with scratch.open("rb") as written:
            os.fsync(written.fileno())
        if _holds(scratch, rows):
            scratch.replace(target)
            stream.unlink(missing_ok=True)
    except pa.ArrowException:
        return
    finally:
        scratch.unlink(missing_ok=True)


def _write(stream: Path, target: Path) -> None:
    """Write the stream's rows in row groups of a size that is good to read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    batches = complete_batches(stream)
    first = next(batches, None)
    if first is None:
        raise FileNotFoundError(stream)  # another reader was faster
    with pq.ParquetWriter(target, first.schema, **schema.encoding(stream.stat().st_size)) as writer:
        waiting, rows = [first], first.num_rows
        for batch in batches:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= ROW_GROUP:
                writer.write_table(pa.Table.from_batches(waiting).combine_chunks())
                waiting, rows = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting).combine_chunks())


def _holds(path: Path, rows: int) -> bool:
    """Whether `path` is a readable Parquet file with at least `rows` rows."""
    if not path.exists():
        return False
    try:
        return ParquetPart(path).rows >= rows
    except InputError:
        return False
