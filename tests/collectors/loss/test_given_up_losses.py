"""Losses that are no number and that the loop skips: no backward shows them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tracelyze.analyzers import diagnose

pytest.importorskip("torch")

SCRIPT = """
import torch, torch.nn.functional as F
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), 0.05)
for step in range(350):
    x = torch.randn(16, 6)
    if BAD(step):
        x[0, 0] = float("nan")
    loss = F.smooth_l1_loss(net(x), x.sum(1, keepdim=True))
    if SKIPS(step, loss):
        continue
    opt.zero_grad(); loss.backward(); opt.step()
"""


def recorded(collect: Any, folder: Path, bad: str, skips: str) -> Any:
    script = folder / "train.py"
    script.write_text(f"BAD = lambda step: {bad}\nSKIPS = lambda step, loss: {skips}\n" + SCRIPT)
    return diagnose(collect(sys.executable, str(script)).run)


@pytest.mark.starts_programs
def test_a_loop_that_skips_what_is_no_number(collect: Any, tmp_path: Path) -> None:
    diagnosis = recorded(collect, tmp_path, "step % 10 == 7", "not torch.isfinite(loss)")
    (finding,) = [one for one in diagnosis.findings if one.rule == "loss-nonfinite"]
    assert (finding.severity, finding.confidence, finding.first_step) == ("warning", "certain", 8)
    assert finding.evidence[0].value > 20, "also those after the first losses, of which few are looked at"


@pytest.mark.starts_programs
def test_a_loop_that_skips_such_a_batch_now_and_then(collect: Any, tmp_path: Path) -> None:
    """Few lost batches are information; once the loop has settled not every one of them is looked at."""
    diagnosis = recorded(collect, tmp_path, "step % 110 == 100", "not torch.isfinite(loss)")
    cause, finding = diagnosis.findings
    assert (cause.rule, cause.severity, finding.caused_by) == ("nonfinite-input", "info", "nonfinite-input")
    assert (finding.rule, finding.severity, finding.confidence) == ("loss-nonfinite", "info", "certain")
    seen = finding.evidence[0].value
    assert 1 <= seen <= 3
    assert finding.title.startswith("At least ") == (seen < 3)
    assert diagnosis.verdict == "info"


@pytest.mark.starts_programs
def test_batches_that_are_given_up_for_another_reason(collect: Any, tmp_path: Path) -> None:
    diagnosis = recorded(collect, tmp_path, "False", "step % 10 == 7")
    assert next(check for check in diagnosis.checks if check.rule == "loss-nonfinite").status == "passed"
    assert diagnosis.findings == []
