"""Lines that are noted as they run: what appends to a list that grows, what clears gradients between backwards."""

from __future__ import annotations

import sys

import pytest

from tests.collectors.conftest import Collect

PROGRAM = """
import sys
import torch
from torch import nn
how = sys.argv[1]
torch.manual_seed(0)
net = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
class Meter:
    def __init__(self):
        self.values = []
    def update(self, value):
        self.values.append(value)
meter, losses, total = Meter(), [], 0.0
def rolled_out(x):
    states = []
    for _ in range(15):
        x = torch.tanh(x + 0.1)
        states.append(x)
    return torch.stack(states).mean()
for step in range(120):
    optimizer.zero_grad()
    out = net(torch.rand(8, 4))
    loss = rolled_out(out)
    loss.backward()
    optimizer.step()
    if how == "append":
        losses.append((step, loss))
    elif how == "meter":
        meter.update(loss)
    elif how == "sum":
        total += loss
    elif how == "item":
        losses.append(loss.item())
    elif how in ("bunches", "cleared") and step % 7 == 0:  # an agent acts, then it is updated several times
        losses = [] if how == "cleared" else losses
        for _ in range(12):
            losses.append((step, net(torch.rand(1, 4))))
    elif how == "episode":
        episode = {"values": []}
        for _ in range(12):
            episode["values"].append(net(torch.rand(1, 4)).sum())
        losses.append(episode)
assert sys.getprofile() is None
print("done")
"""


@pytest.mark.parametrize(
    ("how", "lines"),
    [
        ("append", ["losses.append((step, loss))"]),
        ("meter", ["self.values.append(value)"]),
        ("sum", ["total += loss"]),
        ("item", []),
        ("bunches", ["losses.append((step, net(torch.rand(1, 4))))"]),
        ("cleared", []),
        ("episode", ["losses.append(episode)"]),
    ],
)
def test_the_append_that_keeps_graphs(collect: Collect, tmp_path, how: str, lines: list[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM, encoding="utf-8")
    collected = collect(sys.executable, str(script), how)
    assert collected.process.stdout == "done\n"
    (process,) = collected.run.processes
    assert [one.source for one in process.locations("keeps")] == lines
    inside = ['episode["values"].append(net(torch.rand(1, 4)).sum())'] * (how == "episode")
    assert [one.source for one in process.locations("keeps-inside")] == inside
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]


HOARDS = """
import sys
from collections import deque, namedtuple
import torch
from torch import nn
how = sys.argv[1]
torch.manual_seed(0)
net = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
losses, seen, window = [], [], []
memory, Step = deque(maxlen=5000), namedtuple("Step", "state action")
for step in range(260):
    x = torch.rand(8, 4)
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if how == "hoards":
        seen.append({"step": step, "batch": torch.ones(64, 1024)})
    elif how == "slowly":
        seen.append(torch.ones(16, 1024))
    elif how == "replay":
        memory.append(Step(torch.ones(64, 1024), step))
    elif how == "elsewhere":
        window.append(torch.ones(64, 1024))
        seen = seen + [torch.ones(64, 1024)]
        window = window[-20:]
"""


@pytest.mark.parametrize(
    ("how", "lines"),
    [
        ("hoards", ['seen.append({"step": step, "batch": torch.ones(64, 1024)})']),
        ("slowly", ["seen.append(torch.ones(16, 1024))"]),  # 10 MiB in the run: host-memory-leak speaks from 8 on
        ("elsewhere", []),
        ("replay", []),
        ("no", []),
    ],
)
def test_the_append_that_takes_memory(collect: Collect, tmp_path, how: str, lines: list[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(HOARDS, encoding="utf-8")
    (process,) = collect(sys.executable, str(script), how).run.processes
    assert [one.source for one in process.locations("grows")] == lines
    assert len(process.locations("fills")) == (how == "replay"), "a deque of bounded length is no leak"
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]


CACHES = """
import functools, sys, torch
from torch import nn
how = sys.argv[1]
torch.manual_seed(0)
@functools.lru_cache(maxsize=None)
def features(index, shift):
    return torch.ones(64, 1024)
class Data:
    @functools.lru_cache(None)
    def label(self, index):
        return index % 2
    @functools.lru_cache(maxsize=64)
    def weight(self, index, shift):
        return shift
data, kept = Data(), []
net = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(300):
    index, shift = step % 20, torch.rand(1).item() if how == "anew" else 0.0
    x = features(index, shift)[:8, :4] * data.weight(index, shift)
    kept.append(torch.ones(64, 1024) * data.label(index))
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("how", "lines"), [("anew", ["@functools.lru_cache(maxsize=None)"]), ("again", [])])
def test_the_cache_that_keeps_more_until_the_end(collect: Collect, tmp_path, how: str, lines: list[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(CACHES, encoding="utf-8")
    (process,) = collect(sys.executable, str(script), how).run.processes
    assert [one.source for one in process.locations("caches")] == lines
    told = [(row["name"], row["text"], row["value"]) for row in process.events_of("cache")]
    assert told == [("features", "shift", 0.0)] * len(lines)
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]


CLEARS = """
import sys
import torch
from torch import nn
how = sys.argv[1]
torch.manual_seed(0)
net = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def clear():
    net.zero_grad()
optimizer.zero_grad()
for number in range(200):
    if how == "each":
        optimizer.zero_grad()
    if how == "helper":
        clear()
    net(torch.rand(8, 4)).square().mean().backward()
    if number % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
assert sys.getprofile() is None
"""


@pytest.mark.parametrize(("how", "lines"), [("each", [13]), ("helper", [9]), ("once", [])])
def test_the_call_that_clears_between_backwards(collect: Collect, tmp_path, how: str, lines: list[int]) -> None:
    """Calls that clear what a step has used, or nothing, are others: those of the first line, and the last."""
    script = tmp_path / "train.py"
    script.write_text(CLEARS.lstrip(), encoding="utf-8")
    (process,) = collect(sys.executable, str(script), how).run.processes
    assert [one.line for one in process.locations("clears")] == lines
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
