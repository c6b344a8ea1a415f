"""Losses that leap at one step: a training that blew up, and one that went on with harder data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tracelyze

if TYPE_CHECKING:
    from pathlib import Path

    from tracelyze.diagnosis import Check, Finding

STAGE = np.arange(500)
FIRST = 0.8 + 2.5 * np.exp(-STAGE / 80)
HARDER = 1.6 + 1.2 * np.exp(-STAGE[:300] / 400)


def judged(folder: Path, second: Any, columns: dict[str, tuple[float, float]]) -> tuple[Check, Finding | None]:
    """What loss-divergence says of a log with both stages; columns hold one value in each.

    Gradients grow five steps before the loss, as they do where a training blows up.
    """
    noise = 1 + 0.03 * np.random.default_rng(3).normal(size=len(FIRST) + len(second))
    losses = np.concatenate([FIRST, second]) * noise
    rows = [
        {"step": step + 1, "loss": float(loss)}
        | {n: pair[step >= len(FIRST) - 5 * (n == "grad_norm")] for n, pair in columns.items()}
        for step, loss in enumerate(losses)
    ]
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    diagnosis = tracelyze.diagnose(folder / "log.jsonl")
    (check,) = [check for check in diagnosis.checks if check.rule == "loss-divergence"]
    return check, next((one for one in diagnosis.findings if one.rule == "loss-divergence"), None)


@pytest.mark.parametrize(("second", "level"), [(HARDER, "ends below its start"), (HARDER + 1.3, "ends above it")])
def test_a_loss_that_leaps_and_is_learned_down_again_is_no_alarm(tmp_path: Path, second: Any, level: str) -> None:
    _, finding = judged(tmp_path, second, {})
    assert finding is not None, level
    assert (finding.severity, finding.confidence) == ("info", "possible")
    assert finding.title.startswith("The loss rose again")
    assert "a harder stage of the data" in finding.summary
    assert "blew up" in finding.summary, "both readings"


def test_a_column_that_says_which_data_it_is_explains_the_leap(tmp_path: Path) -> None:
    check, finding = judged(tmp_path, HARDER, {"seq_len": (256, 1024)})
    assert (check.status, finding) == ("passed", None)
    assert check.reason == "The loss leapt at step 501 and has fallen since: seq_len goes from 256 to 1024 there."


@pytest.mark.parametrize(
    ("second", "columns"),
    [
        (np.full(500, 3.0), {}),
        (np.full(500, 3.0), {"seq_len": (256, 1024)}),
        (2.3 + 6 * np.exp(-STAGE / 20), {}),  # falls to what a guess costs, and no further
        (0.8 + 2.0 * (1 - np.exp(-STAGE / 100)), {}),
        (HARDER, {"grad_norm": (1.0, 8.0)}),
    ],
)
def test_a_loss_that_blew_up_is_an_alarm(tmp_path: Path, second: Any, columns: dict[str, tuple[float, float]]) -> None:
    _, finding = judged(tmp_path, second, columns)
    assert finding is not None
    assert finding.confidence == "likely"
    assert finding.title.startswith("The loss diverged")
