"""States that a program keeps over steps, and uses: those that follow the model on purpose are told apart."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.collectors.conftest import Collect

KEPT = """
import copy
import sys
import torch
from torch import nn
how, file = sys.argv[1:]
model, target = nn.Linear(4, 4), nn.Linear(4, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
once = model.state_dict()
best = None
for epoch in range(6):
    if how == "top of the loop":
        best = model.state_dict()
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.rand(16, 4)).square().mean().backward()
        optimizer.step()
    if how == "alias" and epoch in (1, 3):
        best = {"model": model.state_dict(), "epoch": epoch}
    if how == "alias of the best so far" and epoch in (1, 3):
        best = model.state_dict()
    if how == "alias of one epoch" and epoch == 2:
        best = model.state_dict()
    if how == "copy" and epoch in (1, 3):
        best = copy.deepcopy(model.state_dict())
    if how == "saved at once" and epoch in (1, 3):
        torch.save(model.state_dict(), file)
    if how in ("alias of the best so far", "top of the loop"):
        torch.save(best, file)
    if how == "taken once":
        torch.save(once, file)
        target.load_state_dict(once)
if how == "parameters":
    model.state_dict(), model.state_dict()
    torch.save(dict(model.named_parameters()), file)
if how in ("alias", "alias of one epoch", "copy"):
    torch.save(best, file)
"""


@pytest.mark.parametrize(
    ("how", "taken"),
    [
        ("alias", [20]),
        ("alias of the best so far", [10, 20]),
        ("alias of one epoch", [15]),
        ("copy", []),
        ("saved at once", []),
        ("taken once", []),
        ("top of the loop", []),
        ("parameters", []),
    ],
)
def test_states_that_are_used_after_steps(how: str, taken: list[int], collect: Collect, tmp_path: Path) -> None:
    done = collect(sys.executable, "-c", KEPT, how, str(tmp_path / "kept.pt"))
    (process,) = done.run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    rows = [json.loads(row["text"]) for row in process.events.records() if row["kind"] == "kept-state"]
    assert sorted({row["taken_at"] for row in rows}) == taken
    assert all(row["changed"] == row["looked_at"] == 2 for row in rows)


HANDED_ON = """
import sys
import torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 4)
model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.01))
for epoch in range(4):
    if epoch == 2:
        best = accelerator.get_state_dict(model)
        accelerator.save_state(sys.argv[1])
    for _ in range(5):
        optimizer.zero_grad()
        accelerator.backward(model(torch.rand(16, 4)).square().mean())
        optimizer.step()
accelerator.unwrap_model(model).load_state_dict(best)
"""


def test_a_state_that_a_library_hands_on(collect: Collect, tmp_path: Path) -> None:
    """The line that asked is the script's; a library that saves the model asks for itself."""
    pytest.importorskip("accelerate")
    script = tmp_path / "train.py"
    script.write_text(HANDED_ON)
    done = collect(sys.executable, str(script), str(tmp_path / "all"))
    (process,) = done.run.processes
    (load,) = process.tables["loads"].records()
    assert (load["taken_at"], load["own"]) == (10, 2)
    taken = process.site(load["taken_site"])
    assert taken is not None
    assert taken.source == "best = accelerator.get_state_dict(model)"
    assert [one.source for one in process.locations("state_dict")] == [taken.source]
