"""Numbers that a script reads back while it evaluates, and the methods of Tensor afterwards."""

from __future__ import annotations

import math
import sys

import pytest

from tests.collectors.conftest import Collect

LOOP = """
import sys
import torch
from torch import nn
how = sys.argv[1]
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x, target = torch.rand(40, 4), torch.zeros(40)
plain = torch.Tensor.item
for step in range(60):
    optimizer.zero_grad()
    loss = net(torch.rand(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    float(loss)
    if step % 20 == 19:
        net.eval()
        total, parts = 0.0, []
        with torch.no_grad():
            for at in range(0, 40, 10):
                out = net(x[at : at + 10]).squeeze(1)
                one = (target[:10] * torch.log(target[:10] + (0.0 if how == "broken" else 1.0))).mean()
                if how == "half":
                    one = (one / 0).to(torch.bfloat16)
                if how == "whole":
                    (out > 0).sum().item()
                elif how == "together":
                    parts.append(one)
                else:
                    total += one.item()
        if parts:
            print(f"{torch.stack(parts).mean():.3f}")
        net.train()
assert torch.Tensor.item is plain
"""


@pytest.mark.parametrize(
    ("how", "reads", "value"), [("sound", 4, 0.0), ("broken", 4, math.nan), ("half", 4, math.nan), ("together", 1, 0.0),
                                ("whole", 0, None)]
)  # fmt: skip
def test_what_is_read_back_in_a_pass(how: str, reads: int, value: float | None, collect: Collect) -> None:
    done = collect(sys.executable, "-c", LOOP, how)
    assert done.process.returncode == 0
    (process,) = done.run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    rows = list(process.evals.records())
    assert [row["reads"] for row in rows] == [reads] * 3
    for row in rows:
        assert row["read_sum"] == value or (value is not None and math.isnan(value) and math.isnan(row["read_sum"]))
        assert (row["read_site"] is None) == (value is None)
