"""Logs with one row for each epoch: what is said of them speaks of epochs, and of steps where there are steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tracelyze.analyzers import diagnose
from tracelyze.analyzers.evidence import epochs
from tracelyze.analyzers.recorded import run_directory
from tracelyze.diagnosis import Diagnosis
from tracelyze.importing.recordings import import_recording
from tracelyze.reports import render


def diagnosed(folder: Path, name: str, lines: list[str]) -> Diagnosis:
    (folder / name).write_text("\n".join(lines) + "\n")
    import_recording(folder / name, folder / "run")
    return diagnose(run_directory.load(folder / "run"))


LOSSES = ["0.9", "0.7", "0.5", "nan", "nan"]


def test_a_log_of_epochs_speaks_of_epochs(tmp_path: Path) -> None:
    lines = [f"Epoch {at}/5 | train loss: {loss}" for at, loss in enumerate(LOSSES, 1)]
    diagnosis = diagnosed(tmp_path, "train.log", lines)
    finding = diagnosis.findings[0]
    assert finding.title == "The loss became NaN at epoch 4"
    assert finding.summary.startswith(
        "It became so in a step of epoch 4: the log has one value for each epoch. One epoch"
    )
    assert "initial weights" not in finding.summary
    assert (finding.counts, diagnosis.run.counts) == ("epoch", "epoch")
    assert "loss one step later" in finding.fix, "what an optimizer does stays a step"
    for kind in ("text", "markdown", "html"):
        page = render(diagnosis, kind)
        assert "step 4" not in page.lower()
        assert "5 steps" not in page


def test_a_log_of_steps_speaks_of_steps(tmp_path: Path) -> None:
    lines = [json.dumps({"step": at, "epoch": 1, "loss": float(loss)}) for at, loss in enumerate(LOSSES, 1)]
    diagnosis = diagnosed(tmp_path, "train.jsonl", lines)
    assert diagnosis.findings[0].title == "The loss became NaN at step 4"
    assert diagnosis.run.counts == "step"


@pytest.mark.parametrize(
    ("said", "worded"),
    [
        ("from step 4 on", "from epoch 4 on"),
        ("Steps 4 to 5 of 400 steps", "Epochs 4 to 5 of 400 epochs"),
        ("One step earlier, at that step", "One epoch earlier, at that epoch"),
        ("call optimizer.step() once per optimizer step", "call optimizer.step() once per optimizer step"),
        ("the optimizer takes a step down", "the optimizer takes a step down"),
    ],
)
def test_only_what_is_counted_is_an_epoch(said: str, worded: str) -> None:
    assert epochs.in_words(said) == worded
