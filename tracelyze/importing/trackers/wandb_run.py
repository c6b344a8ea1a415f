"""Weights & Biases' offline runs, read by wandb itself: `wandb leet inspect --json` prints the records of a file.

It stands for NaN with the text "NaN", and prints what a file that was cut off holds before it ends.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from tracelyze.errors import Cause, InputError
from tracelyze.importing.columns import meaning
from tracelyze.importing.reading import Numbers, number
from tracelyze.importing.run_builder import Log
from tracelyze.importing.trackers import own_process

MAGIC = b":W&B"
SUFFIX = ".wandb"
_NAMED = ("display_name", "run_id", "start_time")
_COUNT = "_step"
_NEARLY = 0.9  # of the rows
_OWN = ("_wandb", "_timestamp")


def find(folder: Path) -> Path | None:
    """The file of a run's folder, or of the only run below a folder called wandb; None without one."""
    files = sorted(folder.glob(f"*{SUFFIX}")) or sorted(folder.glob(f"latest-run/*{SUFFIX}"))
    files = files or sorted(folder.glob(f"*run-*/*{SUFFIX}"))
    files = files or sorted(folder.glob(f"wandb/*run-*/*{SUFFIX}"))
    return files[0] if len({file.resolve() for file in files}) == 1 else None


def read(path: Path) -> Log:
    """The history of the run. InputError where wandb is not installed or cannot read the file."""
    file = (find(path) or path) if path.is_dir() else path
    own_process.require("wandb", file, "an offline run of Weights & Biases")
    rows: list[Numbers] = []
    facts: dict[str, Any] = {}
    command = ["-m", "wandb", "leet", "inspect", "--json", str(file.resolve())]
    status, trouble = own_process.read("wandb", file, command, lambda record: _take(record, rows, facts))
    if not rows:
        raise InputError(
            Cause.MISSING_PACKAGE,
            f"{file}: wandb could not read it ({trouble or 'it holds no history'}); wandb 0.31 or later is needed",
        )
    _number_by_the_program(rows)
    notes = (f"{file}: {trouble}; what comes before is imported",) if status and trouble else ()
    return Log("wandb", file, rows, facts, notes)


def _number_by_the_program(rows: list[Numbers]) -> None:
    """Where nearly all rows have the step of the training, W&B's count of calls gives way to it."""
    names = [n for n in dict.fromkeys(n for row in rows for n in row) if n != _COUNT and meaning(n).column == "step"]
    for name in names:
        numbers = [number for row in rows if (number := row.get(name)) is not None]
        if len(numbers) >= _NEARLY * len(rows) and all(a <= b for a, b in itertools.pairwise(numbers)):
            for row in rows:
                row.pop(_COUNT, None)
            return


def _take(record: Any, rows: list[Numbers], facts: dict[str, Any]) -> None:
    if not isinstance(record, dict):
        return
    if record.get("type") == "history":
        item = (record.get("history") or {}).get("item")
        if isinstance(item, dict):
            rows.append(_numbers(item))
    elif record.get("type") == "run":
        run = record.get("run") or {}
        facts.update(
            {name: run[name] for name in ("display_name", "run_id", "start_time") if isinstance(run.get(name), str)}
        )
    elif record.get("type") == "exit":
        code = (record.get("exit") or {}).get("exit_code", 0)
        facts["exit_code"] = code


def _numbers(item: dict[str, Any], prefix: str = "") -> Numbers:
    found: Numbers = {}
    for name, value in item.items():
        if name in _OWN:
            continue
        if isinstance(value, bool | int | float):
            found[prefix + name] = float(value)
        elif isinstance(value, str):
            found[prefix + name] = number(value)
        elif isinstance(value, dict) and not prefix and "_type" not in value:
            found |= _numbers(value, f"{name}/")
    return found
