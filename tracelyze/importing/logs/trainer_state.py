"""trainer_state.json of the Hugging Face Trainer (and of TRL's), or a checkpoint or output folder that holds one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tracelyze.errors import Cause, InputError
from tracelyze.importing.reading import numbers, text_of
from tracelyze.importing.run_builder import Log

FILE = "trainer_state.json"
_FACTS = ("global_step", "max_steps", "epoch", "num_train_epochs", "logging_steps")
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def find(folder: Path) -> Path | None:
    """The state in a checkpoint, or of the last checkpoint in an output folder; None if there is none."""
    if (folder / FILE).is_file():
        return folder / FILE
    steps = [int(match[1]) for path in folder.glob("checkpoint-*") if (match := _CHECKPOINT.fullmatch(path.name))]
    states = [folder / f"checkpoint-{step}" / FILE for step in sorted(steps, reverse=True)]
    return next((state for state in states if state.is_file()), None)


def read(path: Path) -> Log:
    """The Trainer's log, all columns of it. InputError for a file that holds none."""
    file = (find(path) or path) if path.is_dir() else path
    try:
        data = json.loads(text_of(file))
    except (ValueError, RecursionError):
        raise InputError(
            Cause.DAMAGED_LOG, f"{file}: half-written or damaged; give the state of another checkpoint"
        ) from None
    return of_state(file, data)


def of_state(file: Path, data: Any) -> Log:
    """The log without its last entry, which sums up the run (its `train_loss` is a mean over all steps)."""
    history = data.get("log_history") if isinstance(data, dict) else None
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise InputError(Cause.DAMAGED_LOG, f"{file}: log_history is not a list of objects; the file is damaged")
    entries = [entry for entry in history if "train_runtime" not in entry]
    facts = {name: data[name] for name in _FACTS if isinstance(data.get(name), int | float)}
    rows = [numbers(file, f"log_history[{index}]", entry) for index, entry in enumerate(entries)]
    for row in rows:  # the duration of an evaluation is no time on the run's clock
        row.pop("eval_runtime", None)
    return Log("trainer_state", file, rows, facts)
