"""How far Adam moves the weights: what is recorded is what the optimizer's own averages say."""

from __future__ import annotations

import json
import sys

import pytest

from tests.collectors.conftest import Collect, run_plain

LOOP = """
import json
import sys
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
how = sys.argv[1]


class Own(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 1e-3, "eps": 1e-8})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
            state["m"].lerp_(p.grad, 0.1)
            state["v"].lerp_(p.grad.square(), 0.01)
            p.sub_(1e-3 * state["m"] / (state["v"].sqrt() + 1e-8))


model = nn.Linear(8, 4, bias=False)
MADE = {
    "adam": lambda: torch.optim.Adam(model.parameters(), lr=1e-3),
    "fused": lambda: torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True),
    "amsgrad": lambda: torch.optim.AdamW(model.parameters(), lr=1e-3, amsgrad=True),
    "rmsprop": lambda: torch.optim.RMSprop(model.parameters(), lr=1e-3),
    "own": lambda: Own(model.parameters()),
    "momentum": lambda: torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9),
    "rmsprop_momentum": lambda: torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9),
    "adadelta": lambda: torch.optim.Adadelta(model.parameters()),
    "adamax": lambda: torch.optim.Adamax(model.parameters(), lr=1e-3),
    "restarted": lambda: torch.optim.Adam(model.parameters(), lr=1e-3),
}
optimizer = MADE[how]()
told = []
for step in range(1, 261):
    if how == "restarted" and step == 200:
        for state in optimizer.state.values():
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros(4, 8), torch.zeros(4, 8)
    x = torch.randn(16, 8)
    loss = nn.functional.mse_loss(model(x), x[:, :4])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    (p,) = model.parameters()
    state = optimizer.state[p]
    m = state.get("exp_avg", state.get("m", p.grad))
    v = state.get("max_exp_avg_sq", state.get("exp_avg_sq", state.get("v", state.get("square_avg"))))
    if v is not None and m is not None:
        size = (m / (v.sqrt() + 1e-8)).square().mean().sqrt().item()
        told.append([size, p.grad.square().mean().sqrt().item(), v.mean().sqrt().item()])
print(json.dumps([told, loss.item(), [w.tolist() for w in model.parameters()]]))
"""


@pytest.mark.parametrize("how", ["adam", "fused", "amsgrad", "rmsprop", "own", "restarted"])
def test_what_is_recorded_is_what_the_averages_say_and_no_bit_of_the_training_changes(
    collect: Collect, how: str
) -> None:
    command = (sys.executable, "-c", LOOP, how)
    one = collect(*command)
    assert one.process.stdout == run_plain(*command).stdout
    told = json.loads(one.process.stdout)[0]
    rows = list(one.run.processes[0].tables["updates"].records())
    assert [row["step"] for row in rows[:99]] == [*range(1, 100)]
    assert rows[-1]["step"] > 250
    assert len(rows) > 115
    for row in rows:
        size, gradient, second = told[int(row["step"]) - 1]
        assert (row["size"], row["gradient"], row["second"]) == pytest.approx((size, gradient, second), rel=1e-4)
        assert how == "own" or row["own_step"] == row["step"]
        assert row["lost"] == 0


@pytest.mark.parametrize("how", ["momentum", "rmsprop_momentum", "adadelta", "adamax"])
def test_optimizers_without_such_averages_leave_no_row(collect: Collect, how: str) -> None:
    command = (sys.executable, "-c", LOOP, how)
    one = collect(*command)
    assert one.process.stdout == run_plain(*command).stdout
    assert not len(one.run.processes[0].tables["updates"])


SEVERAL = """
import torch
from torch import nn


def train(steps):
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        loss = model(torch.randn(16, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


print([train(steps) for steps in (130, 5, 4)])
"""


def test_the_last_steps_of_an_optimizer_are_recorded_though_it_is_gone_before_the_program_ends(
    collect: Collect,
) -> None:
    command = (sys.executable, "-c", SEVERAL)
    one = collect(*command)
    assert one.process.stdout == run_plain(*command).stdout
    steps: dict[float, list[float]] = {}
    for row in one.run.processes[0].tables["updates"].records():
        steps.setdefault(row["optimizer"], []).append(row["step"])
    first, *others = steps.values()
    assert first[:99] == [*range(1, 100)]
    assert first[-1] > 120
    assert others == [[1, 2, 3, 4, 5], [1, 2, 3, 4]]


ELSEWHERE = """
import torch
from torch import nn
torch.manual_seed(0)


class Own(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 1e-3})

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["m"], state["v"] = torch.zeros(p.shape), torch.zeros(p.shape)
            state["m"].lerp_(p.grad, 0.1)
            state["v"].lerp_(p.grad.square(), 0.01)
            p.sub_(1e-3 * state["m"] / (state["v"].sqrt() + 1e-8))


model = nn.Linear(8, 4, bias=False)
model.weight.data = model.weight.data.t().contiguous().t()  # in another order than the averages
optimizer = Own(model.parameters())
for step in range(1, 201):
    if step == 70:
        model.weight.data = model.weight.data.contiguous()
    loss = model(torch.randn(16, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
"""


def test_an_optimizer_that_holds_nothing_of_the_kind_is_asked_less_and_less_often(collect: Collect) -> None:
    """After 1, 33, 66 and 132 of its steps: each time all of its parameters are gone through."""
    command = (sys.executable, "-c", ELSEWHERE)
    one = collect(*command)
    assert one.process.stdout == run_plain(*command).stdout
    steps = [row["step"] for row in one.run.processes[0].tables["updates"].records()]
    assert 132 <= steps[0] <= 136
    assert steps[-1] > 190
