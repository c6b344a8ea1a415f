"""All host ranges of an imported trace, nested ones included, stored so that those of a few steps are quickly found."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from msgspec import Raw

from tracelyze import reading, schema
from tracelyze.analyzers.kineto.reading import events
from tracelyze.analyzers.kineto.reading.blocks import HOST_KINDS, Blocks
from tracelyze.analyzers.kineto.reading.host_spans import (
    LONGEST_DIMS,
    LONGEST_NAME,
    LONGEST_STACK,
    HostArguments,
    HostSpan,
    decoded,
    read_part,
)
from tracelyze.analyzers.kineto.reading.source import TraceBytes
from tracelyze.analyzers.kineto.timeline.categories import kind_of
from tracelyze.errors import Cause, InputError

_ROW_GROUP: Final = 1 << 15
_MOST_CATEGORIES: Final = 1000


def write_ranges(path: Path, blocks: Blocks, folder: Path) -> None:
    """Stores the host ranges of the trace file `path` in `folder`, in the file's order. OSError if it cannot be."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types: Any = {"float64": pa.float64(), "int64": pa.int64(), "bool": pa.bool_()}
    texts = pa.dictionary(pa.int32(), pa.string())
    fields = pa.schema([(column.name, types.get(column.type, texts)) for column in schema.RANGES.columns])
    options: Any = {"compression": "zstd", "write_statistics": ["start", "end"]}
    with pq.ParquetWriter(_file(folder), fields, **options) as writer:
        spans = _spans(path, blocks)
        while rows := [_row(span) for span in islice(spans, _ROW_GROUP)]:
            columns = zip(*rows, strict=True)
            writer.write_batch(
                pa.record_batch(
                    [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)], schema=fields
                )
            )


def read_ranges(folder: Path, windows: Sequence[tuple[float, float]]) -> Iterator[list[HostSpan]]:
    """The stored ranges that touch one of `windows` (microseconds), some at a time, in the file's order.

    Raises InputError where they cannot be read.
    """
    try:
        with reading.open_parquet(_file(folder)) as file:
            start, end = (file.schema_arrow.get_field_index(name) for name in ("start", "end"))
            for index in range(file.num_row_groups):
                group = file.metadata.row_group(index)
                first, last = group.column(start).statistics, group.column(end).statistics
                if first is None or last is None or _touches(windows, first.min, last.max):
                    rows = file.read_row_group(index, use_threads=False)
                    touched = _touches(windows, rows.column("start").to_numpy(), rows.column("end").to_numpy())
                    yield [_span(row) for row in rows.filter(touched).to_pylist()]
    except reading.unreadable() as error:
        raise InputError(
            Cause.DAMAGED_TRACE, f"{_file(folder)}: cannot be read ({_first_line(error)}); import the trace again"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _touches(windows: Sequence[tuple[float, float]], start: Any, end: Any) -> Any:
    """Whether ranges touch one of the windows: a number for numbers, an array for arrays."""
    found = False
    for low, high in windows:
        found = found | ((start < high) & (end >= low))
    return found


def _file(folder: Path) -> Path:
    return folder / f"{schema.RANGES.name}{schema.TABLE_SUFFIX}"


def _spans(path: Path, blocks: Blocks) -> Iterator[HostSpan | events.Span]:
    kinds: dict[str, bool] = {}
    with TraceBytes(path) as source:
        for offset, length in blocks.within([(-math.inf, math.inf)]):
            source.skip_to(offset)
            for span in decoded(read_part(source, length)):
                if not isinstance(span, HostSpan | events.Span):
                    continue
                wanted = kinds.get(span.cat)
                if wanted is None:
                    wanted = kind_of(span.cat) in HOST_KINDS
                    if len(kinds) < _MOST_CATEGORIES:
                        kinds[span.cat] = wanted
                if wanted and math.isfinite(span.ts) and math.isfinite(span.dur):
                    yield span


def _row(span: HostSpan | events.Span) -> tuple[Any, ...]:
    own = span.args if isinstance(span, HostSpan) else None
    return (
        span.ts,
        span.ts + max(span.dur, 0.0),
        span.cat.encode("utf-8", "replace").decode(),
        span.name[:LONGEST_NAME],
        json.dumps(span.pid),
        json.dumps(span.tid),
        own.stack[:LONGEST_STACK] if own is not None and own.stack else None,
        own.sequence if own is not None and isinstance(own.sequence, int) and own.sequence >= 0 else None,
        own is not None and own.forward not in (0, "0"),
        bytes(own.dims)[:LONGEST_DIMS].decode("utf-8", "replace") or None if own is not None else None,
    )


def _span(row: dict[str, Any]) -> HostSpan:
    stack, sequence = row["stack"], row["sequence"]
    return HostSpan(
        cat=row["category"],
        name=row["name"],
        pid=reading.parse_json(row["process"]),
        tid=reading.parse_json(row["thread"]),
        ts=row["start"],
        dur=row["end"] - row["start"],
        args=HostArguments(
            stack or "",
            -1 if sequence is None else sequence,
            int(row["backward"]),
            Raw((row.get("input_dims") or "").encode()),  # imports of earlier versions have no such column
        ),
    )
