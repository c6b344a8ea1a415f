"""A policy's loss is recognised after a supervised training, of another optimizer or of the same one."""

from __future__ import annotations

import sys

import pytest

from tests.collectors.conftest import Collect

LATE = """
import sys
import torch
from torch import nn
torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)


def step(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


for _ in range(50):
    step(nn.functional.cross_entropy(policy(torch.randn(8, 4)), torch.randint(0, 3, (8,))))
if sys.argv[1] == "another":
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
for _ in range(60):
    choices = torch.distributions.Categorical(logits=policy(torch.randn(8, 4)))
    step(-(torch.randn(8) * choices.log_prob(choices.sample())).mean())
"""


@pytest.mark.parametrize("optimizer", ["another", "same"])
def test_a_policy_after_a_supervised_training(optimizer: str, collect: Collect) -> None:
    (process,) = collect(sys.executable, "-c", LATE, optimizer).run.processes
    seen = [row["step"] for row in process.events.records() if row["kind"] == "policy-loss"]
    assert len(seen) >= (20 if optimizer == "another" else 1)
    assert min(seen) >= 50
    assert [row["step"] for row in process.tables["loss_graphs"].records() if row["weights"]] == seen
