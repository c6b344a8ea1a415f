"""Logs of real, healthy trainings: nothing may fire on them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tracelyze.analyzers import diagnose

TRACES = Path(os.environ.get("TRACELYZE_TRACES", Path(__file__).resolve().parents[4] / "shared" / "traces"))
LOGS = TRACES / "nanogpt_logs"


def log(pattern: str) -> str:
    """The text of the log whose name matches."""
    found = sorted(LOGS.glob(pattern))
    if not found:
        pytest.skip("no recorded logs: set TRACELYZE_TRACES to the folder that holds them")
    return found[0].read_text(errors="replace")


def columns(text: str, training: str, validation: str) -> tuple[dict, dict]:
    """Steps and validations by the patterns of their lines: step, loss, and norm and rate where the log has them."""
    steps: dict[str, list[float]] = {}
    for match in re.finditer(training, text, re.MULTILINE):
        for name, value in match.groupdict().items():
            steps.setdefault(name, []).append(float(value))
    evals = [(int(step), float(loss)) for step, loss in re.findall(validation, text, re.MULTILINE)]
    return steps, {"after_step": [step for step, _ in evals], "loss": [loss for _, loss in evals]}


@pytest.mark.parametrize(
    ("name", "training", "validation", "least"),
    [
        (
            "*llmc*",
            r"^s:(?P<step>\d+) trl:(?P<loss>[\d.]+) lr:(?P<lr>[\d.]+) norm:(?P<grad_norm>[\d.]+)",
            r"^s:(\d+) tel:([\d.]+)",
            19_000,
        ),
        ("*Muon*", r"^step:(?P<step>\d+)/\d+ train_loss:(?P<loss>[\d.]+)", r"^step:(\d+)/\d+ val_loss:([\d.]+)", 6_000),
    ],
)
def test_a_healthy_log_is_called_healthy(make, name, training, validation, least) -> None:
    steps, evals = columns(log(name), training, validation)
    assert len(steps["loss"]) > least
    assert len(evals["loss"]) > 10
    process = make.process(steps, evals=evals, optimizers=[], loaders=[], models=[{"model": 0}])
    diagnosis = diagnose(make.run(process))
    assert diagnosis.findings == []
    answered = {check.rule for check in diagnosis.checks if check.status == "passed"}
    assert {"loss-nonfinite", "loss-divergence", "eval-in-train-mode", "validation-fluctuation"} <= answered
