"""Losses of programs that ask for the gradients of weights and call no backward; what else is asked for is none."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.collectors.conftest import Collect
from tracelyze.analyzers import diagnose

PROGRAM = """
import sys
import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, vmap
how = sys.argv[1]
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
weights = {name: weight.detach() for name, weight in net.named_parameters()}
parameters = list(net.parameters())
def loss_of(weights, x, y):
    return (functional_call(net, weights, (x,)) - y).pow(2).mean()
for step in range(60):
    x = torch.rand(16, 4)
    y = x.sum(1, keepdim=True)
    factor = float("nan") if step >= 40 else 1.0
    if how == "by hand":
        loss = (net(x) - y).pow(2).mean() * factor
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for weight, gradient in zip(parameters, gradients):
                weight -= 0.01 * gradient
    elif how == "func":
        gradients, loss = grad_and_value(loss_of)(weights, x * factor, y)
        weights = {name: weight - 0.01 * gradients[name] for name, weight in weights.items()}
    elif how == "attack":
        x.requires_grad_()
        x = x + torch.autograd.grad((net(x) * factor).sum(), x)[0].sign()
    elif how == "per sample":
        vmap(grad(loss_of), (None, 0, 0))(weights, x * factor, y)
    elif how == "curvature":
        loss = (net(x) - y).pow(2).mean() * factor
        first = torch.autograd.grad(loss, parameters, create_graph=True)
        torch.autograd.grad(sum(one.sum() for one in first), parameters)
print("sum", sum(float(weight.sum()) for weight in net.parameters()))
"""


@pytest.mark.parametrize("how", ["by hand", "func"])
def test_the_losses_are_judged(collect: Collect, how: str) -> None:
    run = collect(sys.executable, "-c", PROGRAM, how).run
    diagnosis = diagnose(run, ignore=["slow-steps"])  # of a busy machine
    assert [finding.rule for finding in diagnosis.findings] == ["loss-nonfinite"]
    assert diagnosis.findings[0].first_step == 41
    assert any("the steps are calls of torch." in note for note in diagnosis.run.notes)
    losses = run.processes[0].tables["scalars"]["value"]
    assert len(losses) == 60
    assert np.isfinite(losses[:40]).all()


@pytest.mark.parametrize("how", ["attack", "per sample", "curvature"])
def test_what_is_no_loss(collect: Collect, how: str) -> None:
    assert diagnose(collect(sys.executable, "-c", PROGRAM, how).run).verdict == "unknown"


SECOND_ORDER = """
import sys
import torch
from torch import nn
from torch.func import functional_call
how = sys.argv[1]
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
parameters = dict(net.named_parameters())
def loss_of(weights):
    x = torch.rand(16, 4)
    return (functional_call(net, weights, (x,)) - x.sum(1, keepdim=True)).pow(2).mean()
def slopes(loss, **options):
    return torch.autograd.grad(loss, list(parameters.values()), **options)
def adapted(**options):
    gradients = slopes(loss_of(parameters), **options)
    return {name: weight - 0.01 * one for (name, weight), one in zip(parameters.items(), gradients)}
for step in range(60):
    factor = float("nan") if step >= 40 else 1.0
    if how == "many tasks":
        loss = sum(loss_of(adapted(create_graph=True)) for _ in range(3)) / 3 * factor
        gradients = slopes(loss)
        slopes(loss_of(parameters))  # a task that is adapted to in an evaluation
    elif how == "penalty":
        loss = loss_of(parameters) * factor
        first = slopes(loss, create_graph=True)
        gradients = slopes(loss + 0.01 * sum(one.pow(2).sum() for one in first))
    elif how == "kept for nothing":
        gradients = slopes(loss_of(parameters) * factor, create_graph=True)
    elif how == "curvature":
        gradients = slopes(loss_of(parameters) * factor, create_graph=True)
        curved = slopes(sum((one * one.detach()).sum() for one in gradients))
        gradients = [one / (1 + two.norm()) for one, two in zip(gradients, curved)]
    elif how == "backward":
        net.zero_grad()
        loss_of(adapted(create_graph=True)).backward()
        gradients = [weight.grad for weight in parameters.values()]
    with torch.no_grad():
        for weight, gradient in zip(parameters.values(), gradients):
            weight -= 0.01 * gradient.nan_to_num()
"""


@pytest.mark.parametrize(
    ("how", "count", "nan"),
    [("many tasks", 60, 20), ("penalty", 60, 20), ("kept for nothing", 51, 20), ("curvature", 51, 20)],
)
def test_losses_beside_gradients_that_have_a_graph(collect: Collect, how: str, count: int, nan: int) -> None:
    losses = collect(sys.executable, "-c", SECOND_ORDER, how).run.processes[0].tables["scalars"]["value"]
    assert (len(losses), int(np.isnan(losses).sum())) == (count, nan)


def test_losses_that_have_a_backward_are_taken_there_alone(collect: Collect) -> None:
    process = collect(sys.executable, "-c", SECOND_ORDER, "backward").run.processes[0]
    assert (len(process.tables["scalars"]), len(process.steps)) == (0, 60)


CLASSES = """
import sys
import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, vmap
how, dim = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def loss_of(weights, x, y):
    scores = functional_call(net, weights, (x,))
    return nn.functional.nll_loss(torch.log_softmax(scores, dim), y)
def of_one(weights, x, y):
    return nn.functional.nll_loss(torch.log_softmax(functional_call(net, weights, (x,)), 0)[None], y[None])
for step in range(40):
    weights = {name: weight.detach() for name, weight in net.named_parameters()}
    x = torch.rand(6, 5, 4)
    y = torch.randint(0, 3, (6, 5))
    if how == "groups":
        slopes = vmap(grad(loss_of), (None, 0, 0))(weights, x, y)
    elif how == "samples":
        slopes = vmap(grad(of_one), (None, 0, 0))(weights, x[:, 0], y[:, 0])
    elif how == "inside":
        slopes = grad(lambda w: vmap(loss_of, (None, 0, 0))(w, x, y).mean())(weights)
        slopes = {name: slope[None] for name, slope in slopes.items()}
    else:
        slopes = {name: slope[None] for name, slope in grad(loss_of)(weights, x[0], y[0]).items()}
    for name, weight in net.named_parameters():
        weight.grad = slopes[name].mean(0)
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("how", "dim", "status"),
    [
        ("batch", 0, "fired"),
        ("batch", 1, "passed"),
        ("groups", 0, "fired"),
        ("groups", -1, "passed"),
        ("samples", 0, "skipped"),  # one dimension: the classes
        ("inside", 0, "skipped"),  # vmap runs innermost, whose tensors show no graph
    ],
)
def test_the_softmax_of_a_loss_inside_a_transform(collect: Collect, how: str, dim: int, status: str) -> None:
    diagnosis = diagnose(collect(sys.executable, "-c", CLASSES, how, str(dim)).run)
    (check,) = [check for check in diagnosis.checks if check.rule == "softmax-wrong-dim"]
    assert (check.status, check.why) == (status, "needs-more" if status == "skipped" else None)
    assert "none of torch's was called" not in check.reason


TWO_WAYS = """
import sys
import torch
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(120):
    x = torch.rand(16, 4, requires_grad=sys.argv[1] == "of its own")
    hidden = net(x)
    loss = hidden.square().mean()
    if sys.argv[1] == "of its own":  # a penalty, whose graph ends in this step's
        loss = loss + torch.autograd.grad(hidden.sum(), x, create_graph=True)[0].square().mean()
    loss.backward(retain_graph=True)
    if sys.argv[1] == "in the step":
        torch.autograd.grad(loss, hidden)
    if sys.argv[1] == "made of it":
        torch.autograd.grad(hidden.abs().sum(), hidden)
    if sys.argv[1] == "now and then" and step % 50 == 49:
        torch.autograd.grad(loss, hidden)
    if sys.argv[1] == "another":
        torch.autograd.grad(net(torch.rand(4, 4)).sum(), net.weight)
    optimizer.step()
    optimizer.zero_grad()
    if sys.argv[1] == "behind it":
        torch.autograd.grad(loss, hidden)
"""


@pytest.mark.starts_programs
@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("in the step", "passed"),
        ("behind it", "passed"),
        ("made of it", "passed"),
        ("now and then", "passed"),
        ("never", "fired"),
        ("of its own", "fired"),
        ("another", "fired"),
    ],
)
def test_a_graph_that_is_kept_to_be_gone_through_again(collect: Collect, how: str, status: str) -> None:
    (check,) = diagnose(collect(sys.executable, "-c", TWO_WAYS, how).run, select=["retain-graph"]).checks
    assert check.status == status
