"""Gradients that something changes between backward and step: cleared, clipped, divided, or zero from the start."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.collectors.conftest import Collect
from tracelyze.analyzers import diagnose

SCRIPT = """
import sys, torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(30):
    optimizer.zero_grad()
    for _ in range(2 if sys.argv[1] == "divided" else 1):
        advantage = torch.zeros(16, 1) if sys.argv[1] == "zero" else torch.randn(16, 1)
        (model(torch.randn(16, 4)) * advantage).mean().backward()
    if sys.argv[1] == "divided":
        for parameter in model.parameters():
            parameter.grad /= 2
    elif sys.argv[1] == "cleared":
        optimizer.zero_grad(set_to_none=False)
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("how", "changes", "cleared"), [("zero", 1, 0), ("clipped", 1, 0), ("divided", 1, 0), ("cleared", 1, 4)]
)
def test_changed_gradients(collect: Collect, tmp_path: Path, how: str, changes: int, cleared: int) -> None:
    script = tmp_path / "changed.py"
    script.write_text(SCRIPT)
    run = collect(sys.executable, str(script), how).run
    (process,) = run.processes
    seen = process.steps["grads_changes"]
    assert set(seen[np.isfinite(seen)]) == {changes}
    gone = process.steps["grads_cleared"]
    assert set(gone[np.isfinite(gone)]) == {cleared}
    found = {finding.rule for finding in diagnose(run).findings}
    assert ("zero-grad-after-backward" in found) == (how == "cleared")
    assert "unscaled-accumulation" not in found


BY_HAND = """
import sys, torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
for step in range(40):
    model(torch.randn(16, 4)).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.01)
    if sys.argv[1] == "cleared":
        for parameter in model.parameters():
            parameter.grad.zero_()
"""


@pytest.mark.parametrize(("how", "reused"), [("cleared", 0), ("kept", 38)])
def test_updates_by_hand_of_clipped_gradients(collect: Collect, tmp_path: Path, how: str, reused: int) -> None:
    script = tmp_path / "by_hand.py"
    script.write_text(BY_HAND)
    (process,) = collect(sys.executable, str(script), how).run.processes
    carried = np.nan_to_num(process.steps["grads_carried"])
    assert int((carried > 0).sum()) == reused  # The first step is only recognised as one when it is over.


CLIPPED_EARLY = """
import sys, torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(30):
    optimizer.zero_grad(set_to_none=sys.argv[1] == "none")
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    model(torch.randn(16, 4)).square().mean().backward()
    print(float(torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()))
    optimizer.step()
"""


@pytest.mark.parametrize("how", ["none", "zeros"])
def test_a_clip_before_the_backward_has_no_norm(collect: Collect, tmp_path: Path, how: str) -> None:
    script = tmp_path / "early.py"
    script.write_text(CLIPPED_EARLY)
    collected = collect(sys.executable, str(script), how)
    (process,) = collected.run.processes
    norm, truth = process.steps["grad_norm"], np.array([float(line) for line in collected.process.stdout.split()])
    known = np.isfinite(norm)
    assert known.sum() > 10
    np.testing.assert_allclose(norm[known], truth[known], rtol=1e-5)


SKIPPING = """
import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(300):
    x = torch.randn(16, 4)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    if step % 4 == 0:
        optimizer.zero_grad()
        loss.backward()
    optimizer.step()
"""


def test_steps_without_a_backward_are_measured_in_pairs(collect: Collect, tmp_path: Path) -> None:
    """One sample now and then does not show whether the gradients of the step before were used again."""
    (tmp_path / "train.py").write_text(SKIPPING)
    done = collect(sys.executable, str(tmp_path / "train.py"), options=("--signal", "gradient_norm=every:7"))
    (process,) = done.run.processes
    rows = list(process.steps.records())
    norms = {row["step"]: row["grad_norm"] for row in rows if row["grad_norm"] is not None}
    pairs = [step for step in norms if step - 1 in norms]
    assert all(norms[step] == norms[step - 1] and not rows[step - 1]["backwards"] for step in pairs)
    assert 15 <= len(pairs) <= 20, "a few of them"
    assert len(norms) < 80, "and no more steps than that"
    (finding,) = [one for one in diagnose(done.run).findings if one.rule == "step-without-backward"]
    assert finding.diff
    assert finding.diff.added == ["        optimizer.step()"]
