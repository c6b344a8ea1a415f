"""Stores of trackers in SQLite, opened so that nothing in them can change: MLflow's and Trackio's.

Their own clients are not used: MLflow's migrates a database of another version before it reads, Trackio's starts a
server, and each brings dozens of packages; what they would run here is a SELECT.
"""

from __future__ import annotations

import json
import math
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from tracelyze.errors import Cause, InputError
from tracelyze.importing.reading import Numbers, numbers
from tracelyze.importing.run_builder import Log

MAGIC = b"SQLite format 3\x00"
_ROWS = 20_000_000  # values that are read at most


def kind_of(file: Path) -> str:
    """mlflow, trackio, or "" for any other database."""
    try:
        with _opened(file) as connection:
            columns = {row[1] for row in connection.execute("PRAGMA table_info(metrics)")}
    except InputError:
        return ""
    if {"key", "value", "run_uuid", "step", "is_nan"} <= columns:
        return "mlflow"
    return "trackio" if {"metrics", "run_name", "step"} <= columns else ""


def read_mlflow(file: Path) -> Log:
    """The metrics of the run that began last."""
    with _opened(file) as connection:
        runs = list(
            connection.execute(
                "SELECT run_uuid, name, status FROM runs WHERE run_uuid IN (SELECT DISTINCT run_uuid FROM metrics)"
                " AND lifecycle_stage = 'active' ORDER BY start_time"
            )
        )
        run, note = _last(file, [(str(one[0]), str(one[1]), str(one[2])) for one in runs])
        query = (
            "SELECT step, timestamp, key, CASE WHEN is_nan THEN NULL ELSE value END FROM metrics WHERE run_uuid = ?"
            " ORDER BY step, timestamp, rowid LIMIT ?"
        )
        rows = _by_step(connection.execute(query, (run[0], _ROWS)))
    return Log("mlflow", file, rows, {"run": run[1], "status": run[2]}, note)


def _by_step(records: Any) -> list[Numbers]:
    """MLflow keeps infinities as the largest double, and marks NaN: both are what they were again.

    A cell of SQLite may hold a value of any type, whatever its column says: rows of other types are left out.
    """
    rows: list[Numbers] = []
    start: float | None = None
    for step, timestamp, key, value in records:
        if not (_is_number(step) and _is_number(timestamp) and (value is None or _is_number(value))):
            continue
        start = timestamp if start is None else start
        if not rows or rows[-1]["step"] != step or key in rows[-1]:
            rows.append({"step": float(step), "elapsed_s": (timestamp - start) / 1e3})
        number = float("nan") if value is None else float(value)
        rows[-1][str(key)] = math.copysign(math.inf, number) if abs(number) == sys.float_info.max else number
    return rows


def read_trackio(file: Path) -> Log:
    """The metrics of the run that began last: a JSON object a row."""
    with _opened(file) as connection:
        names = [
            str(row[0]) for row in connection.execute("SELECT run_name FROM metrics GROUP BY run_name ORDER BY MIN(id)")
        ]
        run, note = _last(file, [(name, name, "") for name in names])
        query = "SELECT step, timestamp, metrics FROM metrics WHERE run_name = ? ORDER BY id LIMIT ?"
        records = list(connection.execute(query, (run[0], _ROWS)))
    rows: list[Numbers] = []
    start: datetime | None = None
    for step, timestamp, text in records:
        try:
            content, time = json.loads(text), datetime.fromisoformat(timestamp)
            elapsed = (time - (start or time)).total_seconds()
        except (ValueError, TypeError, RecursionError):
            continue
        if isinstance(content, dict) and _is_number(step):
            start = start or time
            values = numbers(file, f"step {step}", content)
            rows.append({**values, "step": float(step), "elapsed_s": elapsed})
    return Log("trackio", file, rows, {"run": run[1]}, note)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _last(file: Path, runs: list[tuple[str, str, str]]) -> tuple[tuple[str, str, str], tuple[str, ...]]:
    """The run that began last, and a note that names the others."""
    if not runs:
        raise InputError(
            Cause.NOTHING_LOGGED,
            f"{file}: holds no run with metrics; give the store of a training that logged its loss",
        )
    if len(runs) == 1:
        return runs[0], ()
    others = ", ".join(name for _, name, _ in runs[-2:-10:-1]) + (", ..." if len(runs) > 9 else "")
    return runs[-1], (f"{file}: holds {len(runs)} runs; the last one, {runs[-1][1]}, is read, not {others}",)


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    """The database, read-only: also of a run that still writes to it."""
    try:
        connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0)
    except sqlite3.Error as error:
        raise InputError(Cause.OTHER_CONTENT, f"{file}: {error}; give the database of MLflow or Trackio") from None
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    try:
        yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter in the text of an error
        reason = error if isinstance(error, sqlite3.Error) else "its text is no UTF-8"
        raise InputError(Cause.DAMAGED_LOG, f"{file}: {reason}; the database is damaged or in use") from None
    finally:
        connection.close()
