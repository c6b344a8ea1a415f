"""What the Hugging Face Trainer and TRL print: one Python dict a line, between progress bars. Steps are not in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from tracelyze.errors import Cause, InputError
from tracelyze.importing.logs.failures import Ending
from tracelyze.importing.reading import Numbers, lines_of, number
from tracelyze.importing.run_builder import Log

_DICT = re.compile(r"\{(['\"])[A-Za-z_][\w/@<>. -]*\1: .*?\}")
_NUMBERED = re.compile(r"['\"](?:\w+_)?(?:step|iter|iteration|num_updates)['\"]\s*:")
_WORDS = {"null": "None", "true": "True", "false": "False"}
_PROGRESS = re.compile(r"\|\s*(\d+)/(\d+)\s*\[")
_LONGEST = 20_000  # characters of a dict


def looks_so(head: str) -> bool:
    """Whether the beginning of a log holds such a dict, with an epoch and a loss, and without a step."""
    dicts = (found[0].replace('"', "'") for found in _DICT.finditer(head))
    return any("'epoch'" in one and "loss'" in one and not _NUMBERED.search(one) for one in dicts)


def read(file: Path) -> Log:
    """The dicts of the log. The step is computed from the epoch where the log says how many steps an epoch has.

    It says so in the last dict (seconds and steps a second) or in the progress bar. Without either, dicts are counted.
    """
    rows: list[Numbers] = []
    ending, total, summary = Ending(), 0, dict[str, float | None]()
    for line in lines_of(file):
        for progress in _PROGRESS.finditer(line):
            total = max(total, int(progress[2]))
        found = _DICT.search(line)
        values = _values(found[0]) if found else {}
        if "train_runtime" in values:
            summary = values
        elif "epoch" in values:
            rows.append(values)
            ending.trains_on()
        else:
            ending.read(line)
    if not rows:
        raise InputError(
            Cause.OTHER_CONTENT, f"{file}: holds no dict of the Trainer with an epoch; give a log of Trainer or TRL"
        )
    per_epoch = _steps_per_epoch(rows, summary, total)
    count = 0
    for row in rows:
        count += "loss" in row
        row["step"] = float(round((row["epoch"] or 0.0) * per_epoch)) if per_epoch else float(count)
        row.pop("eval_runtime", None)
    note = () if per_epoch else (f"{file}: steps are not in it: they are counted by the lines with a loss",)
    return Log("hf-console", file, rows, {}, note, {"events": ending.events(int(rows[-1]["step"] or 0))})


def _values(text: str) -> dict[str, float | None]:
    """The numbers of a dict, which may be in quotes. Literals only: nothing is executed."""
    if len(text) > _LONGEST:
        return {}
    try:
        plain = re.sub(r"(?<=[:,\[ ])-?(?:nan|inf|NaN|Infinity)\b", r"'\g<0>'", text)
        plain = re.sub(r"(?<=[:,\[ ])(?:null|true|false)\b", lambda word: _WORDS[word[0]], plain)
        data: Any = ast.literal_eval(plain)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    found = {str(name): float(v) if isinstance(v, int | float) else number(str(v)) for name, v in data.items()}
    return {name: value for name, value in found.items() if value is not None}


def _steps_per_epoch(rows: list[Numbers], summary: Numbers, total: int) -> float | None:
    """Steps in an epoch, from the run's number of steps; None where the log does not say."""
    last = max(row["epoch"] or 0.0 for row in rows)
    runtime, rate = summary.get("train_runtime"), summary.get("train_steps_per_second")
    steps = round(runtime * rate) if runtime and rate else total
    epochs = summary.get("epoch") or last
    return steps / epochs if steps and epochs else None
