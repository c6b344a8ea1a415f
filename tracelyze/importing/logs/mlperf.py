"""MLPerf training logs: lines of `:::MLLOG` and a JSON object each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracelyze.errors import Cause, InputError
from tracelyze.importing.reading import Numbers, lines_of
from tracelyze.importing.run_builder import Log

MARK = ":::MLLOG"
# Where a step or what stands for it is written, the plainest first; values under one of them are one curve.
_STEPS = (
    "step_num",
    "curr_global_step",
    "current_iter_num",
    "step",
    "samples_count",
    "epoch_num",
    "first_epoch_num",
)
_LOSSES: Mapping[str, str] = {
    "train_loss": "loss",
    "loss": "loss",
    "eval_loss": "val_loss",
    "validation_loss": "val_loss",
}


def read(file: Path) -> Log:
    """Losses, rates and evaluated metrics by step. Where only samples or epochs are logged, those number the steps."""
    entries: list[dict[str, Any]] = []
    for line in lines_of(file):
        place = line.find(MARK)
        if place < 0:
            continue
        try:
            entry = json.loads(line[place + len(MARK) :])
        except (ValueError, RecursionError):
            continue  # a line that a dying program left half-written
        if isinstance(entry, dict) and isinstance(entry.get("key"), str):
            entries.append(entry)
    if not entries:
        raise InputError(
            Cause.OTHER_CONTENT, f"{file}: holds no complete {MARK} line; give the result file of an MLPerf training"
        )
    start = min((t for entry in entries if isinstance(t := entry.get("time_ms"), int | float)), default=0.0)
    unit = _unit(entries)
    rows = [row for entry in entries for row in _rows(entry, start, unit)]
    facts = {"step_unit": unit, "benchmark": _value(entries, "submission_benchmark"), "status": _status(entries)}
    note = () if unit in _STEPS[:4] else (f"{file}: steps are numbered by {unit}",)
    return Log("mlperf", file, rows, {k: v for k, v in facts.items() if v is not None}, note, of_training=True)


def _metadata(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    found = entry.get("metadata")
    return found if isinstance(found, dict) else {}


def _unit(entries: list[dict[str, Any]]) -> str:
    """What numbers most of the values that are written with one: of several, the plainest."""
    counts = {name: sum(bool(_values(entry)) and name in _metadata(entry) for entry in entries) for name in _STEPS}
    return max(_STEPS, key=lambda name: counts[name])


def _rows(entry: Mapping[str, Any], start: float, unit: str) -> list[Numbers]:
    """A row for a value (or a dictionary of them) that has a step."""
    step, values, time = _metadata(entry).get(unit), _values(entry), entry.get("time_ms")
    if not values or not isinstance(step, int | float):
        return []
    elapsed = (float(time) - start) / 1e3 if isinstance(time, int | float) else None
    return [{"step": float(step), "elapsed_s": elapsed, **values}]


def _values(entry: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that an entry holds by name. Where intervals begin and end, and settings, are none of a curve."""
    value, key = entry.get("value"), str(entry["key"])
    items = value.items() if isinstance(value, dict) else [(key, value)]
    return {
        _LOSSES.get(str(name), str(name)): float(number)
        for name, number in items
        if isinstance(number, int | float) and not isinstance(number, bool)
    }


def _value(entries: list[dict[str, Any]], key: str) -> str | None:
    return next((str(entry["value"]) for entry in entries if entry["key"] == key), None)


def _status(entries: list[dict[str, Any]]) -> str | None:
    """What the run said of its end: success or aborted; None without an end."""
    ends = [entry for entry in entries if entry["key"] == "run_stop"]
    return str(_metadata(ends[-1]).get("status")) if ends else None
