"""Traces that a program's own profiler wrote become windows of the run that was recorded of the program.

Which steps a window holds is known by time: both the profiler and the collector relate their clocks to the host's.
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from tracelyze import schema
from tracelyze.analyzers.kineto.reading import rankfiles
from tracelyze.analyzers.kineto.reading.importer import extent
from tracelyze.analyzers.kineto.reading.reader import read_trace
from tracelyze.analyzers.recorded import run_directory
from tracelyze.analyzers.recorded.run import Process
from tracelyze.errors import Cause, InputError
from tracelyze.formatting import plural

SECOND: Final = 1e6
_PART: Final = re.compile(rf"{schema.WINDOWS.name}(?:-(\d+))?\..*")


@dataclass(frozen=True)
class _Placed:
    """A trace file, the process whose window it is, and the steps of that process which it holds."""

    file: Path
    process: Process
    first_step: int
    last_step: int
    step_seconds: float

    @property
    def name(self) -> str:
        """Its name in the process's folder."""
        return f"window-{self.first_step - 1:08d}-{self.file.name}"


def add_windows(paths: Sequence[Path | str], run: Path) -> str:
    """Adds trace files, and those of folders, to the recorded run `run`; returns a sentence on what was added.

    Either all of them are added or none: InputError for a trace that cannot be read, that the run holds already, or
    that was recorded while none of the run's processes of its rank trained; and for a run that still goes on.
    """
    recorded = run_directory.load(run)
    trained = [process for process in recorded.processes if len(process.steps)]
    if not trained:
        raise InputError(Cause.TAKES_NO_TRACE, f"{run}: no step was recorded in it; name a new folder for the traces")
    if any(process.exit.kind == "running" for process in trained):
        raise InputError(
            Cause.TAKES_NO_TRACE, f"{run}: still being recorded; import the traces when the program has ended"
        )
    files = rankfiles.trace_files(paths)
    placed = [_place(*one, trained) for one in zip(files, rankfiles.positions(files), strict=True)]
    for one in placed:
        if (run / one.process.name / one.name).exists():
            raise InputError(Cause.TAKES_NO_TRACE, f"{one.file}: is in {run} already; run `tracelyze diagnose {run}`")
    try:
        for process, own in _by_process(_together(placed)).items():
            _write(run / process, own)
    except OSError as error:
        raise InputError(Cause.UNWRITABLE, f"{run}: {error.strerror or error}; the run has to be writable") from None
    steps = ", ".join(f"{first:,} to {last:,}" for first, last in sorted({(p.first_step, p.last_step) for p in placed}))
    ranks = len({one.process.rank for one in placed})
    return f"added {plural(len(placed), 'trace')} of {plural(ranks, 'rank')} to the run: steps {steps}"


def _place(file: Path, position: int, trained: Sequence[Process]) -> _Placed:
    """The process that ran when the trace was recorded, and the steps of its first optimizer that it holds."""
    if rankfiles.is_stored(file):
        raise InputError(
            Cause.TAKES_NO_TRACE,
            f"{file}: was imported before; give the profiler's own file to add it to a recorded run",
        )
    trace = read_trace(file)
    begin, end = (time / SECOND for time in extent(trace))
    ranks = {process.rank for process in trained}
    rank = rankfiles.rank_of(trace, position if len(ranks) > 1 else min(ranks))
    reasons = []
    for process in (process for process in trained if process.rank == rank):
        ends = _ends(process)
        if ends is None:
            reasons.append(f"{process.name} does not say when it ran")
            continue
        if begin < ends[-1] and end > ends[0]:
            first, last = np.searchsorted(ends, (begin, end)).tolist()
            held = np.diff(ends[max(first - 1, 0) : last])
            return _Placed(file, process, first + 1, max(last, first + 1), float(held.mean()) if len(held) else 0.0)
        reasons.append(f"{process.name} trained from {_said(ends[0])} to {_said(ends[-1])}")
    known = "; ".join(reasons[:3]) or f"the run holds no rank {rank}"
    raise InputError(
        Cause.TAKES_NO_TRACE,
        f"{file}: recorded from {_said(begin)} to {_said(end)}, but {known}; name a new folder to import it by itself",
    )


def _ends(process: Process) -> Any:
    """When the steps of the process's first optimizer ended, in seconds since 1970, shape [steps]; None if unknown."""
    zero = (process.facts.get("clock") or {}).get("zero")
    if not isinstance(zero, (int, float)):
        return None
    times = process.optimizations[0].steps["time"]
    return np.sort(times[np.isfinite(times)]) + zero if np.isfinite(times).any() else None


def _said(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "seconds").removesuffix("+00:00")
    except (OverflowError, ValueError, OSError):
        return "an unknown time"


def _together(placed: Sequence[_Placed]) -> list[_Placed]:
    """Move the k-th window of every rank to the steps of the lowest rank's, so that they are judged as one window."""
    by_rank: dict[int, list[_Placed]] = defaultdict(list)
    for one in sorted(placed, key=lambda one: (one.process.rank, one.first_step)):
        by_rank[one.process.rank].append(one)
    lead = by_rank[min(by_rank)]
    found = []
    for own in by_rank.values():
        for index, one in enumerate(own):
            like = lead[index] if index < len(lead) else one
            near = like.first_step <= one.last_step and one.first_step <= like.last_step
            steps = like if near else one
            found.append(_Placed(one.file, one.process, steps.first_step, steps.last_step, one.step_seconds))
    return found


def _by_process(placed: Sequence[_Placed]) -> dict[str, list[_Placed]]:
    found: dict[str, list[_Placed]] = defaultdict(list)
    for one in placed:
        found[one.process.name].append(one)
    return found


def _write(folder: Path, placed: Sequence[_Placed]) -> None:
    """Copies the traces of one process, and last adds rows about them to its table of windows, as a part of its own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for one in placed:
        shutil.copyfile(one.file, folder / one.name)
    parts = [int(match[1] or 0) for match in map(_PART.fullmatch, (path.name for path in folder.iterdir())) if match]
    table = f"{schema.WINDOWS.name}-{max(parts, default=0) + 1:05d}{schema.TABLE_SUFFIX}"
    rows: dict[str, list[Any]] = {
        "first_step": [one.first_step for one in placed],
        "last_step": [one.last_step for one in placed],
        "file": [one.name for one in placed],
        "seconds": [None] * len(placed),
        "step_seconds": [one.step_seconds or None for one in placed],
    }
    types: Any = {"float64": pa.float64(), "string": pa.string(), "int64": pa.int64()}
    fields = pa.schema([(column.name, types[column.type]) for column in schema.WINDOWS.columns])
    scratch = folder / f".{table}.partial"
    try:
        pq.write_table(pa.table(rows, schema=fields), scratch)
        scratch.replace(folder / table)
    finally:
        scratch.unlink(missing_ok=True)
