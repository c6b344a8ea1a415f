"""Dropout within fused attention is counted in forwards that evaluate."""

from __future__ import annotations

import sys

import pytest

from tests.collectors.conftest import Collect
from tracelyze.analyzers import diagnose

ATTENTION = """
import sys
import torch
import torch.nn.functional as F
from torch import nn
how, batches = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.attn_p = nn.Linear(8, 24), 0.2
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        if how == "always":
            return F.scaled_dot_product_attention(q, k, v, dropout_p=self.attn_p)
        if how == "by place":
            return F.scaled_dot_product_attention(q, k, v, None, 0.2)
        if how == "samples":
            return F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=self.attn_p if self.training else 0.0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.head = Attention(), nn.Linear(8, 1)
    def forward(self, x):
        return self.head(F.relu(self.attention(x))).mean(1)
net, held_out = Net(), torch.rand(64, 5, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
losses = []
for step in range(240):
    x = torch.rand(16, 5, 8)
    loss = F.mse_loss(net(x), x[:, :, 0].mean(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        if how != "forgotten":
            net.eval()
        with torch.no_grad():
            if how == "samples":
                answer = torch.stack([net(held_out) for _ in range(5)]).mean(0)
                losses.append(F.mse_loss(answer, held_out[:, :, 0].mean(1, keepdim=True)).item())
            for batch in () if how == "samples" else held_out.chunk(batches):
                losses.append(F.mse_loss(net(batch), batch[:, :, 0].mean(1, keepdim=True)).item())
        net.train()
print(f"{sum(losses):.9f} {torch.rand(1).item():.9f}")
"""


@pytest.mark.parametrize(
    ("how", "batches", "fires"),
    [
        ("always", 4, True),
        ("always", 1, True),
        ("by place", 4, True),
        ("forgotten", 4, True),
        ("by mode", 4, False),
        ("samples", 1, False),
    ],
)
def test_dropout_in_attention(how: str, batches: int, fires: bool, collect: Collect) -> None:
    done = collect(sys.executable, "-c", ATTENTION, how, str(batches))
    (process,) = done.run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    (check,) = diagnose(done.run, select=("eval-in-train-mode",)).checks
    assert (check.status == "fired") == fires, check
    counted = [row["dropouts"] / row["forwards"] for row in process.evals.records()]
    assert (max(counted) == 1) == (how != "by mode"), "one attention in each forward"


DEFAULT_DEVICE = """
import torch
torch.set_default_device("cpu")
"""
OWN_MODE = """
import torch
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))
mode = Mode().__enter__()
"""


@pytest.mark.parametrize(("before", "found"), [(DEFAULT_DEVICE, True), (OWN_MODE, False)], ids=["device", "own mode"])
def test_a_default_device_is_no_mode_of_the_program(before: str, found: bool, collect: Collect) -> None:
    done = collect(sys.executable, "-c", before + ATTENTION, "always", "4")
    (process,) = done.run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    (check,) = diagnose(done.run, select=("eval-in-train-mode",)).checks
    assert (check.status == "fired") is found, check
