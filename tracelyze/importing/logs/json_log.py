"""Logs in JSON: one object a line, or one list of objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tracelyze.errors import Cause, InputError
from tracelyze.importing.logs import trainer_state
from tracelyze.importing.reading import Numbers, numbers, text_of
from tracelyze.importing.run_builder import Log

_WRAPPERS = ("data", "metrics", "values", "scalars", "log", "logs")


def read(file: Path) -> Log:
    """The rows of the log. A last line that a dying program left half-written is dropped."""
    text = text_of(file)
    try:
        data = json.loads(text)
    except ValueError:
        return Log("jsonl", file, _lines(file, text))
    except RecursionError:
        raise InputError(Cause.IMPLAUSIBLE, f"{file}: JSON that is nested too deeply; give one object a step") from None
    if isinstance(data, dict) and "log_history" in data:
        return trainer_state.of_state(file, data)
    if isinstance(data, dict) and "traceEvents" in data:
        raise InputError(Cause.OTHER_CONTENT, f"{file}: a profiler trace, not a log")
    records = data if isinstance(data, list) else [data]
    if not all(isinstance(record, dict) for record in records):
        raise InputError(
            Cause.OTHER_CONTENT, f"{file}: JSON, but no list of objects; give one object a step, with step and loss"
        )
    return Log("jsonl", file, [numbers(file, f"record {n}", _unwrapped(record)) for n, record in enumerate(records, 1)])


def _lines(file: Path, text: str) -> list[Numbers]:
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    rows: list[Numbers] = []
    for number, line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            if number == lines[-1][0] and rows:
                break
            raise InputError(
                Cause.DAMAGED_LOG, f"{file}: line {number} is not JSON; give a log with one JSON object a line"
            ) from None
        if not isinstance(record, dict):
            raise InputError(
                Cause.DAMAGED_LOG, f"{file}: line {number} is no JSON object; give a log with one JSON object a line"
            )
        rows.append(numbers(file, f"line {number}", _unwrapped(record)))
    return rows


def _unwrapped(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose values lie in an object of their own (`{"step": 1, "data": {...}}`, as verl writes) without it."""
    inner = [name for name, value in record.items() if isinstance(value, dict)]
    if len(inner) != 1 or inner[0] not in _WRAPPERS:
        return record
    return {**{name: value for name, value in record.items() if name != inner[0]}, **record[inner[0]]}
