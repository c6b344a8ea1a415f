"""Hooks of the model's modules are counted, and the line that registers them is known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.collectors.conftest import Collect

PROGRAM = """
import time, torch
from torch import nn

class Probe:
    def __call__(self, module, given, out):
        self.seen = out.detach().abs().mean()

def attach(model):
    return [model[0].register_forward_hook(Probe()), model[2].register_forward_hook(Probe())]

model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(9):
    handles = attach(model)
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        optimizer.zero_grad()
        model(torch.randn(16, 4)).square().mean().backward()
        optimizer.step()
    for handle in handles if {removed} else []:
        handle.remove()
"""


@pytest.mark.parametrize("removed", [False, True])
def test_hooks_that_are_never_removed(collect: Collect, tmp_path: Path, removed: bool) -> None:
    script = tmp_path / "probed.py"
    script.write_text(PROGRAM.format(removed=removed))
    (process,) = collect(sys.executable, str(script)).run.processes
    rows = [row for row in process.events.records() if row["kind"] == "hooks"]
    counts = [row["value"] for row in rows]
    assert counts == sorted(set(counts))
    assert counts[0] in (2, 4)
    assert counts[-1] == (2 if removed else 18)
    assert {(row["name"], row["line"]) for row in rows} == {("__call__", 6)}
    assert [one.line for one in process.locations("module-hook")] == [10]
