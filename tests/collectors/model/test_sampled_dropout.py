"""Forwards that drop values and get the same input again: samples of what a model answers."""

from __future__ import annotations

import sys

import pytest

from tests.collectors.conftest import Collect

SAMPLED = """
import sys
import torch
from torch import nn
import torch.nn.functional as F
how = sys.argv[1]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 16), nn.Linear(16, 1)
    def forward(self, x):
        return self.last(F.dropout(self.first(x), 0.2))
net, held_out = Net(), torch.rand(40, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(30):
    optimizer.zero_grad()
    net(torch.rand(8, 4)).square().mean().backward()
    optimizer.step()
    if step % 10 == 9:
        net.eval()
        with torch.inference_mode(how == "inference"), torch.no_grad():
            if how == "batches":
                [net(batch) for batch in held_out.split(8)]
            elif how == "changed":
                for _ in range(5):
                    net(held_out.add_(0.1))
            else:
                [net(held_out) for _ in range(5)]
        net.train()
"""


@pytest.mark.parametrize(("how", "repeats"), [("samples", 4), ("inference", 4), ("batches", 0), ("changed", 0)])
def test_repeated_inputs_are_counted(how: str, repeats: int, collect: Collect) -> None:
    done = collect(sys.executable, "-c", SAMPLED, how)
    (process,) = done.run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    assert [(row["forwards"], row["repeats"]) for row in process.evals.records()] == [(5, repeats)] * 3
