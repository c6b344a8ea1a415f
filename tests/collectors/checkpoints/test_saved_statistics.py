"""Files that hold the weights of a model, and the running statistics of its BatchNorm or not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.collectors.conftest import Collect

PROGRAM = """
import copy
import sys
import torch
from torch import nn
how, file = sys.argv[1:]
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 8), norm, nn.ReLU())
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        return self.head(self.inner(x))
norms = {"not tracked": nn.BatchNorm1d(8, track_running_stats=False), "layer": nn.LayerNorm(8)}
net = Net(norms.get(how, nn.BatchNorm1d(8)))
x, y = torch.randn(64, 6) * 3 + 1, torch.randint(0, 2, (64,))
if how == "not persistent":
    for kept in ("running_mean", "running_var", "num_batches_tracked"):
        net.inner[1].register_buffer(kept, getattr(net.inner[1], kept), persistent=False)
def batches():
    for epoch in range(4):
        for rows in torch.randperm(64).split(16):
            yield x[rows], y[rows]
trained = list(net.parameters())
if how in ("adapter", "frozen"):
    for one in net.inner[0].parameters() if how == "adapter" else ():
        one.requires_grad_(False)
    trained = [one for one in trained if one.requires_grad]
if how == "second":
    other = Net(nn.BatchNorm1d(8))
    optimizer = torch.optim.Adam(other.parameters(), lr=0.01)
    for inputs, targets in batches():
        optimizer.zero_grad()
        nn.functional.cross_entropy(other(inputs), targets).backward()
        optimizer.step()
optimizer = torch.optim.Adam(trained, lr=0.01)
average = copy.deepcopy(net)
for inputs, targets in batches():
    net.train()
    if how == "frozen":
        net.inner[1].eval()
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(inputs), targets).backward()
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(average.parameters(), net.parameters()):
            old.lerp_(new, 0.1)
weights = {name: one.detach() for name, one in net.named_parameters()}
if how == "copies":
    weights = {name: one.clone() for name, one in weights.items()}
if how == "adapter":
    weights = {name: one for name, one in net.named_parameters() if one.requires_grad}
if how == "average":
    weights = {name: one.detach() for name, one in average.named_parameters()}
if how == "state":
    weights = net.state_dict()
if how == "copied state":
    weights = copy.deepcopy(net.state_dict())
content = {"model": weights, "optimizer": optimizer.state_dict()}
if how == "buffers":
    content["buffers"] = {name: one.clone() for name, one in net.named_buffers()}
if how == "listed buffers":
    content["buffers"] = [one.clone() for one in net.buffers()]
if how == "module":
    content["model"] = net
torch.save(content, file)
"""


@pytest.mark.parametrize(
    ("how", "kept", "missing"),
    [
        ("named", 2, 2),
        ("copies", 2, 2),
        ("second", 2, 2),
        ("state", 2, 0),
        ("copied state", 2, 0),
        ("module", 2, 0),
        ("buffers", 2, 0),
        ("listed buffers", 2, 0),  # which of them is which nobody says
        ("not persistent", 0, 0),
        ("not tracked", 0, 0),
        ("layer", 0, 0),
        ("adapter", 0, 0),  # its base is not in the file either
        ("average", 0, 0),  # other weights, for which statistics are computed
        ("frozen", 0, 0),
    ],
)
def test_running_statistics_in_files(how: str, kept: int, missing: int, collect: Collect, tmp_path: Path) -> None:
    done = collect(sys.executable, "-c", PROGRAM, how, str(tmp_path / "last.pt"))
    (process,) = done.run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    (row,) = [row for row in process.tables["checkpoints"].records() if row["action"] == "save"]
    assert (row["optimizer"], row["statistics"], row["statistics_missing"]) == (True, kept, missing)
