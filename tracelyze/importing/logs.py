"""`tracelyze import log`: trainer_state.json of the Hugging Face Trainer, CSV and JSONL logs as a run directory."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from tracelyze.errors import InputError
from tracelyze.importing.run_builder import Log, recognised, write_run

TRAINER_STATE = "trainer_state.json"
_ABSENT = frozenset(("", "none", "null", "na", "n/a", "-"))
_TRAINER_FACTS = ("global_step", "max_steps", "epoch", "num_train_epochs")
_LIMIT = 4 * 2**30


def import_log(file: Path, run: Path) -> str:
    """Make the run directory `run` from the log `file`; returns a sentence on what was imported.

    The format is told by the content: a JSON object with `log_history` (trainer_state.json, or a checkpoint folder that
    holds one), JSON lines (or one JSON list), or CSV with a header (comma, semicolon or tab). InputError, one line, for
    anything else.
    """
    return write_run(read_log(file), run)


def read_log(file: Path) -> Log:
    """The rows of a log, numbers as they stand there: NaN and infinities are kept, what is missing is None."""
    if file.is_dir() and (file / TRAINER_STATE).is_file():
        file = file / TRAINER_STATE
    text = _text(file)
    if not text.strip():
        raise InputError(f"{file}: is empty; give the log of a training that has made steps")
    if text.lstrip()[0] in "{[":
        return _json(file, text)
    return Log("csv", file, _csv(file, text))


def _text(file: Path) -> str:
    try:
        if file.is_file() and file.stat().st_size > _LIMIT:
            raise InputError(f"{file}: larger than {_LIMIT >> 30} GiB; keep the columns step, loss, grad_norm, lr only")
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        remedy = (
            f"use tracelyze import tensorboard {file}" if "tfevents" in file.name else "give a JSON, JSONL or CSV log"
        )
        raise InputError(f"{file}: not a text file; {remedy}") from None
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}; give the path of a log") from None


def _json(file: Path, text: str) -> Log:
    try:
        data = json.loads(text)
    except ValueError:
        return Log("jsonl", file, _json_rows(file, text))
    if isinstance(data, dict) and "log_history" in data:
        return _trainer_state(file, data)
    if isinstance(data, dict) and "traceEvents" in data:
        raise InputError(f"{file}: a profiler trace, not a log")
    records = data if isinstance(data, list) else [data]
    if not all(isinstance(record, dict) for record in records):
        raise InputError(f"{file}: JSON, but no list of objects; give one object a step, with step and loss")
    return Log("jsonl", file, [_numbers(file, f"record {n}", record) for n, record in enumerate(records, 1)])


def _trainer_state(file: Path, data: dict[str, Any]) -> Log:
    """The Trainer's log, without its last entry, which sums up the run (its `train_loss` is a mean over all steps)."""
    history = data["log_history"]
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise InputError(f"{file}: log_history is not a list of objects; the file is damaged")
    entries = [entry for entry in history if "train_runtime" not in entry]
    facts = {name: data[name] for name in _TRAINER_FACTS if isinstance(data.get(name), int | float)}
    rows = [_numbers(file, f"log_history[{index}]", entry) for index, entry in enumerate(entries)]
    return Log("trainer_state", file, rows, facts)


def _json_rows(file: Path, text: str) -> list[dict[str, float | None]]:
    """One object a line. A last line that a dying program left half-written is dropped."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    rows: list[dict[str, float | None]] = []
    for number, line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            if number == lines[-1][0] and rows:
                break
            raise InputError(f"{file}: line {number} is not JSON; give a log with one JSON object a line") from None
        if not isinstance(record, dict):
            raise InputError(f"{file}: line {number} is no JSON object; give a log with one JSON object a line")
        rows.append(_numbers(file, f"line {number}", record))
    return rows


def _csv(file: Path, text: str) -> list[dict[str, float | None]]:
    header = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=header.count)
    if delimiter not in header:
        raise InputError(
            f"{file}: not a log that tracelyze reads; give trainer_state.json, JSON lines, or CSV with a header"
        )
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, restkey="", skipinitialspace=True)
    try:
        return [_numbers(file, f"line {reader.line_num}", record) for record in reader]
    except csv.Error as error:
        raise InputError(f"{file}: line {reader.line_num}: {error}") from None


def _numbers(file: Path, where: str, record: dict[str, Any]) -> dict[str, float | None]:
    """The numbers of a record by name, nested objects as `outer/inner`.

    Text that is no number becomes None, but InputError where a loss or another known column must hold a number.
    """
    numbers: dict[str, float | None] = {}
    for name, value in _flat(record):
        if value is None or (isinstance(value, str) and value.strip().lower() in _ABSENT):
            numbers[name] = None
        elif isinstance(value, int | float):
            numbers[name] = float(value)
        elif isinstance(value, str):
            try:
                numbers[name] = float(value)
            except ValueError:
                if recognised([name]):
                    raise InputError(f"{file}: {where}: {name} is {value[:40]!r}, not a number") from None
                numbers[name] = None
    return numbers


def _flat(record: dict[str, Any]) -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for name, value in record.items():
        if isinstance(value, dict):
            flat += [(f"{name}/{inner}", item) for inner, item in value.items()]
        else:
            flat.append((str(name), value))
    return flat
