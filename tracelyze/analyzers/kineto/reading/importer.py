"""Profiler traces made elsewhere as a run directory. It lives here, not in collectors, because the reader does."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracelyze import schema
from tracelyze.analyzers.kineto.reading import device_spans, rankfiles, stored, stored_ranges, stored_said
from tracelyze.analyzers.kineto.reading.blocks import Blocks
from tracelyze.analyzers.kineto.reading.reader import read_trace
from tracelyze.analyzers.kineto.timeline.trace import Trace
from tracelyze.errors import Cause, InputError
from tracelyze.formatting import plural
from tracelyze.version import __version__


def import_traces(paths: Sequence[Path | str], run: Path) -> str:
    """Makes the run directory `run` from trace files and folders of them; returns sentences on what it holds.

    A trace that cannot be read is left out and noted, as a diagnosis of the files would. Raises InputError where no
    path holds a trace, and where `run` is not empty or cannot be made.
    """
    files = rankfiles.trace_files(paths)
    made = _make(run)
    entries: list[dict[str, Any]] = []
    refused: list[InputError] = []
    try:
        for index, (position, path) in enumerate(zip(rankfiles.positions(files), files, strict=True)):
            try:
                blocks = Blocks()
                trace = read_trace(path, blocks)
            except InputError as error:
                refused.append(error)
                continue
            folder = run / f"{rankfiles.STORED}{index:05d}"
            rank = rankfiles.rank_of(trace, position)
            folder.mkdir()
            stored_ranges.write_ranges(path, blocks, folder)
            stored_said.write_said(device_spans.said_by(path, blocks, [(-math.inf, math.inf)]), folder)
            stored.write_trace(trace, folder, rank)
            entries.append(_entry(trace, folder.name, rank))
        if not entries:
            if made:
                run.rmdir()
            raise refused[0]
        _number_windows(entries)
        source = {"kind": "kineto", "traces": entries, "left_out": [str(error) for error in refused]}
        common = {"schema_version": schema.SCHEMA_VERSION, "tracelyze_version": __version__}
        facts = {**common, "source": source, "command": []}
        (run / schema.RUN_FILE).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(
            Cause.UNWRITABLE, f"{run}: {error.strerror or error}; choose a folder that can be written"
        ) from None
    return "\n".join([_said(entries), *_notes(entries), *(f"Left out: {error}." for error in refused)])


def _make(run: Path) -> bool:
    """Makes the folder; whether it was not there before."""
    try:
        missing = not run.exists()
        run.mkdir(parents=True, exist_ok=True)
        if any(run.iterdir()):
            raise InputError(Cause.NOT_EMPTY, f"{run}: is not empty; name a new folder for the run")
    except OSError as error:
        raise InputError(Cause.UNWRITABLE, f"{run}: {error.strerror}; choose a folder that can be written") from None
    return missing


def _entry(trace: Trace, folder: str, rank: int) -> dict[str, Any]:
    """What run.json says about one trace; times are microseconds on the clock that the files of one job share."""
    first, last = extent(trace)
    return {
        "folder": folder,
        "file": str(trace.path),
        "rank": rank,
        "first_us": first,
        "last_us": last,
        "events": trace.events,
        "truncated": trace.truncated,
        "notes": trace.notes,
    }


def extent(trace: Trace) -> tuple[float, float]:
    """First start and last end of all activity, in microseconds on the clock that the files of one job share."""
    tables = [table for table in (trace.device, *trace.host.values()) if len(table)]
    first = min((float(table["start"].min()) for table in tables), default=0.0)
    return first + trace.base, max((float(table["end"].max()) for table in tables), default=0.0) + trace.base


def _number_windows(entries: list[dict[str, Any]]) -> None:
    """The first, second, ... window of a rank: the profiler writes one file for each."""
    met: dict[int, int] = {}
    for entry in sorted(entries, key=lambda entry: entry["first_us"]):
        entry["window"] = met.get(entry["rank"], 0)
        met[entry["rank"]] = entry["window"] + 1


def _said(entries: Sequence[dict[str, Any]]) -> str:
    ranks = len({entry["rank"] for entry in entries})
    windows = 1 + max(entry["window"] for entry in entries)
    events = sum(entry["events"] for entry in entries)
    many = f" in {windows} windows" if windows > 1 else ""
    return f"imported {plural(len(entries), 'trace')} of {plural(ranks, 'rank')}{many}: {events:,} events"


def _notes(entries: Sequence[dict[str, Any]]) -> list[str]:
    return [f"{Path(entry['file']).name}: {note}" for entry in entries for note in entry["notes"]]
