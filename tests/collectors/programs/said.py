"""`tracelyze.log` in loops that no hook sees, and in one that they do. First argument: which."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

import tracelyze

what = sys.argv[1]
torch.manual_seed(0)
x = torch.randn(64, 3)
y = x @ torch.tensor([1.0, 2.0, 3.0])


class Numbers:
    """An optimizer that is no torch.optim class, for gradients that come from `torch.autograd.grad`."""

    def __init__(self, weights):
        self.weights = weights

    def step(self, gradient, rate=0.02):
        with torch.no_grad():
            self.weights.sub_(rate * gradient)


if what in ("nan", "overfits", "healthy"):
    weights = torch.zeros(3, requires_grad=True)
    optimizer = Numbers(weights)
    for step in range(300):
        batch = step % 8
        loss = ((x @ weights - y) ** 2).mean()
        if what == "nan" and step >= 200:
            loss = loss + torch.log(loss.detach() * 0 - 1)
        (gradient,) = torch.autograd.grad(loss, [weights])
        optimizer.step(torch.nan_to_num(gradient))
        tracelyze.log(loss=loss, batch=f"shard-{batch}", step=step)
        if step % 15 == 14:
            gap = max(0, step - 100) / 100 if what == "overfits" else 0.0
            tracelyze.log(loss=loss.item() + 1.0 + gap, phase="eval")
elif what == "seen":
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(100):
        loss = F.mse_loss(model(x)[:, 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tracelyze.log(loss=loss * 1000, batch=step)
        if step % 10 == 9:
            model.eval()
            with torch.no_grad():
                value = F.mse_loss(model(x)[:, 0], y)
            model.train()
            tracelyze.log(loss=float("nan"), phase="eval")
elif what == "by-hand-loss":  # an optimizer of torch and a backward of nobody's; validation without a torch loss
    model = nn.Sequential(nn.Linear(3, 1), nn.Dropout(0.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    parameters = list(model.parameters())
    for step in range(100):
        loss = (model(x)[:, 0] - y).square().mean()
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        optimizer.step()
        tracelyze.log(loss=loss)
        if step % 10 == 9:
            model.eval()
            with torch.no_grad():
                tracelyze.log(loss=(model(x)[:, 0] - y).square().mean() + 0.5, phase="val", step=step)
            model.train()
elif what == "nonsense":

    class Angry:
        def __float__(self):
            raise RuntimeError("no number today")

        def __index__(self):
            raise RuntimeError("no index today")

        def __repr__(self):
            raise RuntimeError("no text today")

    values = [
        None, "0.5", b"1", [1.0], (1, 2), {"a": 1}, {1, 2}, object(), Angry(), Angry, lambda: 1, 1j, 10**400,
        float("nan"), float("inf"), True, torch.zeros(3), torch.zeros(()), torch.zeros(1, 1),
        torch.zeros(1, device="meta"), torch.ones((), dtype=torch.complex64),
        torch.zeros((), requires_grad=True), torch.zeros(0), x.numpy(),
        x.numpy()[0, 0], iter([1]), Ellipsis, "hf_" + "Q" * 34,
    ]  # fmt: skip
    for value in values:
        tracelyze.log(value)
        tracelyze.log(loss=value)
        tracelyze.log(loss=1.0, batch=value)
        tracelyze.log(loss=1.0, phase=value)
        tracelyze.log(loss=1.0, step=value)
        tracelyze.log(accuracy=value, **{"a name": value, "": value})
    for number in range(300):
        tracelyze.log(**{f"name {number}": 1.0})
    with torch.inference_mode():
        tracelyze.log(loss=torch.ones(()))
    print("went on")
