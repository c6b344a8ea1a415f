"""Copies of the trained model that are evaluated: whether their weights follow, seen on real trainings."""

from __future__ import annotations

import sys

import pytest

from tests.collectors.conftest import Collect
from tracelyze.analyzers import diagnose

AVERAGED = """
import copy
import sys
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
how = sys.argv[1]
torch.manual_seed(0)
kind = torch.randint(0, 4, (960,))
x = torch.randn(960, 6) + 2 * torch.nn.functional.one_hot(kind, 6)
net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))
if how == "swa never":
    average = AveragedModel(net)
else:
    average = copy.deepcopy(net)
average.eval().requires_grad_(False)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(240):
    pick = torch.randint(0, 720, (32,))
    scores = net(x[pick])
    loss = torch.nn.functional.cross_entropy(scores, kind[pick])
    if how == "reference" and step % 10 == 0:
        with torch.no_grad():
            held = average(x[pick]).log_softmax(-1)
        loss = loss + 0.01 * (held.exp() * (held - scores.log_softmax(-1))).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    decay = {"follows": 0.9, "slow": 0.99995, "written": 0.9, "late": 0.9}.get(how, 1)
    if how == "late" and step < 120:
        decay = 1
    with torch.no_grad():
        for mean, now in zip(average.parameters(), net.parameters()):
            mean.lerp_(now, 1 - decay) if decay < 1 else None
    if step % 40 == 39 and how != "reference":
        with torch.no_grad():
            answers = average(x[720:])
            if how.startswith("written"):
                print(-answers.log_softmax(-1)[torch.arange(240), kind[720:]].mean().item())
            print((answers.argmax(1) == kind[720:]).float().mean().item())
            if how == "baseline":
                print((net(x[720:]).argmax(1) == kind[720:]).float().mean().item())
"""


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("never", "fired"),
        ("swa never", "fired"),
        ("written never", "fired"),
        ("slow", "fired"),
        ("follows", "passed"),
        ("written", "passed"),
        ("late", "passed"),
        ("baseline", "skipped"),
        ("reference", "skipped"),
    ],
)
def test_copies_that_stand_still(how: str, status: str, collect: Collect) -> None:
    done = collect(sys.executable, "-c", AVERAGED, how)
    (process,) = done.run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    diagnosis = diagnose(done.run, select=("ema-not-updated",))
    (check,) = diagnosis.checks
    assert check.status == status, check


PUT_IN = """
import sys
import torch
from torch import nn
how = sys.argv[1]
torch.manual_seed(0)
x, y = torch.randn(640, 6), torch.randn(640, 1)
net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
mean = [weight.detach().clone() for weight in net.parameters()]
for step in range(240):
    pick = torch.randint(0, 640, (32,))
    loss = nn.functional.mse_loss(net(x[pick]), y[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for kept, now in zip(mean, net.parameters()):
            kept.lerp_(now, 0.1)
    if step % 40 == 39:
        own = [weight.data.clone() for weight in net.parameters()]
        for kept, weight, back in zip(mean, net.parameters(), own):
            if how == "copied":
                weight.data.copy_(kept)
            elif how == "replaced":
                weight.data = kept.clone()
        net.eval()
        with torch.no_grad():
            print(nn.functional.mse_loss(net(x), y).item())
        for weight, back in zip(net.parameters(), own):
            weight.data.copy_(back)
        net.train()
"""


@pytest.mark.parametrize(("how", "differs"), [("own", False), ("copied", True), ("replaced", True)])
def test_weights_that_are_put_into_the_model_to_evaluate_it(how: str, differs: bool, collect: Collect) -> None:
    (process,) = collect(sys.executable, "-c", PUT_IN, how).run.processes
    table = process.tables["put_in"]
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    assert table["step"].tolist() == [40, 80, 120, 160, 200], "the last one is followed by no step"
    assert ((table["apart"] > 0) == differs).all()
    assert (table["moved"][1:] > 0).all()
