"""Runs that neptune-exporter saved from Neptune's servers: Parquet files, one run in one or more parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from tracelyze import reading
from tracelyze.errors import Cause, InputError
from tracelyze.importing.reading import Numbers
from tracelyze.importing.run_builder import Log

MAGIC: Final = b"PAR1"
_COLUMNS: Final = ("run_id", "attribute_path", "attribute_type", "step", "timestamp", "float_value")
_PART: Final = re.compile(r"_part_(\d+)\.parquet$")
_SERIES: Final = "float_series"
_FINEST: Final = 10**6  # steps are decimals of six places there


def looks_so(file: Path) -> bool:
    """Whether a Parquet file has the exporter's columns."""
    try:
        with reading.open_parquet(file) as table:
            return set(table.schema_arrow.names).issuperset(_COLUMNS)
    except InputError:
        return False
    except reading.unreadable():
        return False


def find(folder: Path) -> list[Path]:
    """The first parts of the exported runs in a folder of the exporter, the one that was written last at the end."""
    for pattern in ("*_part_0.parquet", "*/*_part_0.parquet", "data/*/*_part_0.parquet"):
        found = [path for path in sorted(folder.glob(pattern)) if looks_so(path)]
        if found:
            return sorted(found, key=lambda path: path.stat().st_mtime)
    return []


def read(path: Path) -> Log:
    """The series of one run, from all its parts; of several runs in a folder, those of the last one."""
    found = find(path) if path.is_dir() else [path]
    if not found:
        raise InputError(Cause.OTHER_CONTENT, f"{path}: holds no export of neptune-exporter; give its folder data")
    first = found[-1]
    name = _PART.sub("", first.name)
    notes = [f"{path}: holds {len(found)} runs; the last one, {name}, is read"] if len(found) > 1 else []
    parts = [file for file in first.parent.iterdir() if _PART.sub("", file.name) == name and _PART.search(file.name)]
    rows: dict[Fraction, Numbers] = {}
    runs: set[str] = set()
    start: float | None = None
    for part in sorted(parts or [first]):
        for run, metric, step, time, value in _series(part):
            runs.add(run)
            start = time if start is None or (time is not None and time < start) else start
            rows.setdefault(step, {"elapsed_s": time})[metric] = value
    if len(runs) > 1:
        raise InputError(Cause.SEVERAL_TRAININGS, f"{first}: holds {len(runs)} runs; export each to a file of its own")
    finest = max((step.denominator for step in rows), default=1)
    scale = next((10**power for power in range(7) if all(10**power % s.denominator == 0 for s in rows)), _FINEST)
    if finest > 1:
        notes.append(f"Steps are fractions there; they are multiplied by {scale:,}")
    numbered: list[Numbers] = []
    for step in sorted(rows):
        time = rows[step].pop("elapsed_s", None)
        elapsed = time - start if time is not None and start is not None else None
        numbered.append({"step": float(step * scale), "elapsed_s": elapsed, **rows[step]})
    return Log("neptune", first, numbered, {"run": name}, tuple(notes))


def _series(file: Path) -> Iterator[tuple[str, str, Fraction, float | None, float | None]]:
    """Of each value of a series: run, name, step, seconds since 1970, value."""
    try:
        with reading.open_parquet(file) as table:
            for batch in table.iter_batches(columns=list(_COLUMNS)):
                columns: dict[str, list[Any]] = batch.to_pydict()
                for run, name, kind, step, time, value in zip(*(columns[c] for c in _COLUMNS), strict=True):
                    if kind == _SERIES and step is not None and value is not None:
                        yield str(run), str(name), Fraction(step), time.timestamp() if time else None, float(value)
    except reading.unreadable() as error:
        raise InputError(Cause.DAMAGED_LOG, f"{file}: {str(error)[:200]}; export the run again") from None
