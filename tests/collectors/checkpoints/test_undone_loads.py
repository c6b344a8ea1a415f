"""Loads that the next optimizer step undoes, from copies of the weights that were made before."""

from __future__ import annotations

import json
import sys

import pytest

from tests.collectors.conftest import Collect

pytestmark = pytest.mark.starts_programs

PROGRAM = """
import copy, sys
import torch
from torch import nn
how = sys.argv[1]
torch.manual_seed(0)
def make():
    return nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 2))
state, model = make().state_dict(), make()
def copies():
    return [one.detach().clone().requires_grad_() for one in model.parameters()]
shadows = copies() if how == "before" else None
kept = copy.deepcopy(model.state_dict())
model.load_state_dict(state)
with torch.no_grad():
    model(torch.randn(4, 8))
if how == "by hand":  # the file was only evaluated
    with torch.no_grad():
        for name, one in model.named_parameters():
            one.copy_(kept[name])
shadows = shadows or copies()
optimizer = torch.optim.Adam(shadows, lr=1e-3)
for step in range(4):
    model.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    for shadow, one in zip(shadows, model.parameters()):
        shadow.grad = one.grad.clone()
    optimizer.step()
    with torch.no_grad():
        for shadow, one in zip(shadows, model.parameters()):
            one.copy_(shadow)
"""


@pytest.mark.parametrize(("how", "undone"), [("before", 3), ("after", 0), ("by hand", 0)])
def test_a_step_that_writes_back_what_was_there_before_a_load(
    collect: Collect, tmp_path, how: str, undone: int
) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM, encoding="utf-8")
    (process,) = collect(sys.executable, str(script), how).run.processes
    rows = [json.loads(one["text"]) for one in process.events_of("undone-load")]
    assert [(one["undone"], one["changed"], one["steps"]) for one in rows] == ([(3, 3, 1)] if undone else [])
    assert not process.events_of("collector-error")
