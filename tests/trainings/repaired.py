"""The script of a labelled training with the edit that a finding proposes: a copy, to be run instead."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Final

from .manifest import Training

# A few of each kind of edit, which take a second or two: with all trainings switched on, every edit is run.
RUN_AGAIN: Final = (
    "best_weights_alias",
    "churn_table[tight-clip]",
    "early_return_from_eval",
    "noise_schedule[first-steps]",
    "slow_trunk[one-peak]",
    "two_faults_zero_grad_and_eval",
    "validation_builds_graphs",
)


def applied(training: Training, diff: dict[str, Any], folder: Path) -> Training:
    """The training after the edit: what it removes has to stand in the script, and the script has to compile."""
    assert Path(diff["file"]).name == training.script.name, diff
    lines = training.script.read_text(encoding="utf-8").splitlines()
    at = diff["line"] - 1
    assert 0 <= at <= len(lines), diff
    assert lines[at : at + len(diff["removed"])] == diff["removed"], diff
    source = "\n".join([*lines[:at], *diff["added"], *lines[at + len(diff["removed"]) :]]) + "\n"
    compile(source, training.script.name, "exec")
    folder.mkdir()
    copy = folder / training.script.name
    copy.write_text(source, encoding="utf-8")
    return dataclasses.replace(training, path=str(copy), exit_code=0, roots=(), lines=())
