"""A trace that was imported: its columns in Parquet files, so that it opens again in a fraction of the time.

What is stored is the :class:`~timeline.trace.Trace` itself, column by column and number by number, so
that everything that is said about a file is said about its import.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from tracelyze import reading, schema
from tracelyze.analyzers.kineto.timeline.categories import Activity
from tracelyze.analyzers.kineto.timeline.table import Array, Table
from tracelyze.analyzers.kineto.timeline.trace import (
    COVERAGE_COLUMNS,
    DEVICE_COLUMNS,
    HOST_COLUMNS,
    LAUNCH_COLUMNS,
    MEMORY_COLUMNS,
    Collective,
    Trace,
)
from tracelyze.errors import Cause, InputError
from tracelyze.schema import manifests

ROW_GROUP: Final = 1 << 17
_REQUIRED: Final = ("schema_version", "file", "base_us", "events", "notes", "properties")
_NO_NAME: Final = -1
_ARROW: Final = {"float64": "double"}
"""What Arrow calls a type, where the schema has another name."""


def write_trace(trace: Trace, folder: Path, rank: int) -> None:
    """Stores `trace`, which is of `rank`, in the folder `folder`; its description last. OSError if it cannot be."""
    _write(schema.DEVICE, folder, [_columns(trace.device)])
    _write(schema.LAUNCHES, folder, [_columns(trace.launches)])
    _write(schema.MEMORY, folder, [_columns(trace.memory)])
    _write(schema.HOST, folder, (_host_rows(activity, table) for activity, table in trace.host.items()))
    _write(schema.LABELS, folder, [_labels(trace)])
    facts = {
        "schema_version": schema.SCHEMA_VERSION,
        "file": trace.file,
        "rank": rank,
        "base_us": trace.base,
        "events": trace.events,
        "stacks": trace.stacks,
        "truncated": trace.truncated,
        "notes": trace.notes,
        "properties": trace.properties,
    }
    (folder / schema.TRACE_FILE).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def open_trace(folder: Path) -> Trace:
    """The trace that :func:`write_trace` stored. InputError, in one line, where the folder is not as it was written."""
    try:
        facts = _facts(folder / schema.TRACE_FILE)
        if facts["schema_version"] > schema.SCHEMA_VERSION:
            raise InputError(
                Cause.NEWER_FORMAT,
                f"{folder}: imported in format version {facts['schema_version']}, this tracelyze reads up to "
                f"{schema.SCHEMA_VERSION}; upgrade tracelyze",
            )
        labels = _read_labels(folder)
        trace = Trace(
            path=folder,
            file=facts["file"],
            device=_read(schema.DEVICE, folder, DEVICE_COLUMNS),
            launches=_read(schema.LAUNCHES, folder, LAUNCH_COLUMNS),
            host=_read_host(folder),
            memory=_read(schema.MEMORY, folder, MEMORY_COLUMNS),
            device_names=labels["device name"],
            host_names=labels["host name"],
            queues=[tuple(reading.parse_json(text)) for text in labels["queue"]],
            threads=[tuple(reading.parse_json(text)) for text in labels["thread"]],
            collectives=[Collective(*reading.parse_json(text)) for text in labels["collective"]],
            properties=facts["properties"],
            base=facts["base_us"],
            events=facts["events"],
            notes=list(facts["notes"]),
            truncated=facts["truncated"],
            stacks=facts["stacks"],
            rank=facts["rank"],
        )
        _check_numbers(trace)
        return trace
    except reading.unreadable() as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(
            Cause.DAMAGED_TRACE, f"{folder}: an imported trace that is damaged ({reason}); import it again"
        ) from error


def _facts(file: Path) -> dict[str, Any]:
    """The description of an imported trace. TypeError, ValueError or OSError where it is not as it was written."""
    facts = reading.parse_json(reading.read_text(file))
    if not isinstance(facts, dict):
        raise TypeError(f"{file.name} holds no object")
    facts, wrong = manifests.conformed(facts, manifests.TRACE)
    wrong += [f"{name} is missing" for name in _REQUIRED if facts.get(name) is None]
    if wrong:
        raise TypeError(f"{file.name}: {wrong[0]}")
    return facts


def _check_numbers(trace: Trace) -> None:
    """IndexError where a number has no label."""
    named = [table for activity, table in trace.host.items() if activity is not Activity.RUNTIME]
    for tables, column, labels in (
        ([trace.device], "name", len(trace.device_names)),
        ([trace.device], "queue", len(trace.queues)),
        ([trace.device], "collective", len(trace.collectives)),
        ([trace.launches, *trace.host.values()], "thread", len(trace.threads)),
        (named, "name", len(trace.host_names)),
    ):
        for table in tables:
            if len(table) and not 0 <= int(table[column].min()) <= int(table[column].max()) < labels:
                raise IndexError(f"{column} without a label")


def _columns(table: Table) -> dict[str, Array]:
    return {name: table[name] for name in table.names}


def _host_rows(activity: Activity, table: Table) -> dict[str, Array]:
    """One class of host activity, as rows of the table of all of them."""
    rows = _columns(table) | {"activity": np.full(len(table), activity, dtype=np.int8)}
    rows.setdefault("name", np.full(len(table), _NO_NAME, dtype=np.int32))
    return rows


def _labels(trace: Trace) -> dict[str, Any]:
    """What stands behind the numbers. Lists are written in ASCII: names of queues may be no text that UTF-8 knows."""
    sets: dict[str, Sequence[str]] = {
        "device name": trace.device_names,
        "host name": trace.host_names,
        "queue": [json.dumps(queue) for queue in trace.queues],
        "thread": [json.dumps(thread) for thread in trace.threads],
        "collective": [json.dumps([one.name, one.group]) for one in trace.collectives],
    }
    rows = [(name, number, text) for name, texts in sets.items() for number, text in enumerate(texts)]
    return {name: [row[index] for row in rows] for index, name in enumerate(("set", "number", "text"))}


def _write(table: schema.Table, folder: Path, parts: Iterable[dict[str, Any]]) -> None:
    """One table: each part in row groups of its own, as columns by name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types: Any = {"float64": pa.float64(), "string": pa.string()}
    fields = pa.schema(
        [(column.name, types.get(column.type) or getattr(pa, column.type)()) for column in table.columns]
    )
    coded = [column.name for column in table.columns if column.type != "float64"]
    options: Any = {"compression": "zstd", "use_dictionary": coded, "write_statistics": False}
    with pq.ParquetWriter(folder / f"{table.name}{schema.TABLE_SUFFIX}", fields, **options) as writer:
        for part in parts:
            rows = len(part[table.columns[0].name])
            for first in range(0, rows, ROW_GROUP):
                piece = [pa.array(part[field.name][first : first + ROW_GROUP], field.type) for field in fields]
                writer.write_batch(pa.record_batch(piece, schema=fields))


def _row_groups(table: schema.Table, folder: Path) -> Iterator[dict[str, Array]]:
    with reading.open_parquet(folder / f"{table.name}{schema.TABLE_SUFFIX}") as file:
        for index in range(file.num_row_groups):
            columns = file.read_row_group(index, use_threads=False)
            yield {column.name: _values(columns.column(column.name), column.type) for column in table.columns}


def _values(column: Any, type_: str) -> Array:
    """A column as an array, by its buffers: the way of pyarrow itself imports pandas, which costs more than reading."""
    if column.null_count or str(column.type) != _ARROW.get(type_, type_):
        raise ValueError(f"column of {column.type} with {column.null_count} missing values instead of {type_}")
    pieces = [
        np.frombuffer(chunk.buffers()[1] or b"", dtype=type_)[chunk.offset : chunk.offset + len(chunk)]
        for chunk in column.chunks
    ]
    return pieces[0] if len(pieces) == 1 else np.concatenate([np.zeros(0, dtype=type_), *pieces])


def _read(table: schema.Table, folder: Path, columns: dict[str, str]) -> Table:
    read = Table.unbounded(columns)
    for rows in _row_groups(table, folder):
        read.append(**rows)
    return read


def _read_host(folder: Path) -> dict[Activity, Table]:
    host: dict[Activity, Table] = {
        activity: Table.unbounded(COVERAGE_COLUMNS if activity is Activity.RUNTIME else HOST_COLUMNS)
        for activity in Activity
        if activity is not Activity.DROPPED
    }
    for rows in _row_groups(schema.HOST, folder):
        activity = rows.pop("activity")
        edges = [0, *(np.flatnonzero(np.diff(activity)) + 1).tolist(), len(activity)]
        for first, last in pairwise(edges):
            if last > first:
                host[Activity(int(activity[first]))].append(**{name: rows[name][first:last] for name in rows})
    return host


def _read_labels(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in ("device name", "host name", "queue", "thread", "collective")}
    with reading.open_parquet(folder / f"{schema.LABELS.name}{schema.TABLE_SUFFIX}") as file:
        columns = file.read(use_threads=False).to_pydict()
    for name, text in zip(columns["set"], columns["text"], strict=True):
        found[name].append(text)
    return found
