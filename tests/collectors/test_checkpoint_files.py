"""Files of weights that hold several models."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .conftest import Collect

GAN = """
import copy
import sys
import torch
from torch import nn
how, file = sys.argv[1:]
def build(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs))
G, D = build(4, 2), build(2, 1)
start = {"G": copy.deepcopy(G.state_dict()), "D": copy.deepcopy(D.state_dict())}
optimizers = [torch.optim.Adam(net.parameters(), lr=0.01) for net in (D, G)]
for _ in range(10):
    for optimizer in optimizers:
        optimizer.zero_grad()
        D(G(torch.rand(16, 4))).square().mean().backward()
        optimizer.step()
states = {"G": G.state_dict(), "D": D.state_dict()}
if how == "copies":
    states = copy.deepcopy(states) | {"average": copy.deepcopy(start["G"])}
elif how == "one":
    states.pop("D")
elif how == "start":
    states = start
torch.save(states | {"optimizer": optimizers[0].state_dict()}, file)
"""


@pytest.mark.parametrize(
    ("how", "missing", "untouched"), [("live", 0, 0), ("copies", 0, 0), ("one", 3, 0), ("start", 0, 8)]
)
def test_models_of_one_file_use_the_same_names(
    how: str, missing: int, untouched: int, collect: Collect, tmp_path: Path
) -> None:
    done = collect(sys.executable, "-c", GAN, how, str(tmp_path / "gan.pt"))
    (process,) = done.run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    (row,) = [row for row in process.tables["checkpoints"].records() if row["action"] == "save"]
    assert (row["held"], row["missing"], row["untouched"]) == (8, missing, untouched)
