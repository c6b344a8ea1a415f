"""Trains small models and prints, as JSON, what a recording of their activations, weights and updates must say."""

import copy
import json
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
X, Y = torch.randn(32, 12), torch.arange(32) % 3
STEPS = 6


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 40)
        self.block = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(40, 16))
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        return self.last(self.block(self.first(x)))


def by_hand(model):
    """Outputs of the modules, computed without calling them."""
    first = F.linear(X, model.first.weight, model.first.bias)
    relu = F.relu(first)
    inner = F.linear(relu, model.block[1].weight, model.block[1].bias)
    return {"first": first, "block.0": relu, "block.1": inner, "last": F.linear(inner, *model.last.parameters())}


def facts(t):
    return [t.mean().item(), t.std(correction=0).item(), t.abs().max().item(), (t == 0).double().mean().item()]


def plain():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth = {"activations": [], "parameters": []}
    for _ in range(STEPS):
        with torch.no_grad():
            outputs = by_hand(model)
        truth["activations"].append({name: facts(tensor) for name, tensor in outputs.items()})
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
        truth["parameters"].append({})
        for name, p in model.named_parameters():
            norms = [before[name].norm(), (p.detach() - before[name]).norm(), gradients[name].norm()]
            truth["parameters"][-1][name] = [value.item() for value in (*norms, gradients[name].abs().max())]
    print(json.dumps(truth))


def train(model, optimizer, steps=STEPS, x=X):
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x).float(), Y).backward()
        optimizer.step()


def lost():
    """Weights of 16 bit that a small rate cannot move."""
    model = Net().to(torch.bfloat16)
    train(model, torch.optim.SGD(model.parameters(), lr=1e-6), x=X.to(torch.bfloat16))


def not_applied():
    """An optimizer that was made before the first layer was: it steps the rest, and this group has no rate."""
    model = Net()
    groups = [{"params": model.first.parameters(), "lr": 0.0}, {"params": model.block.parameters()}]
    train(model, torch.optim.SGD(groups, lr=0.1))


def failing():
    """Two of the collector's own signals raise while they look."""
    from tracelyze.collectors.signals.model import activations, parameters

    activations.every_nth = parameters.norms_of = None
    model = Net()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))


def double():
    model = Net().double()
    train(model, torch.optim.AdamW(model.parameters()), x=X.double())


def overflows():
    """Weights that leave the first layer's output infinite from the fourth step on."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, 3)
    with torch.no_grad():
        model.block[1].weight[3, 5] = float("inf")
    train(model, optimizer, 3)


def unusual():
    """Modules that return no tensors, share children, or are called by vmap, checkpoints and copies."""
    from torch.utils.checkpoint import checkpoint

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.gate = nn.Linear(12, 12), nn.Identity()

        def forward(self, x):
            self.gate({"a": [1, "b"], "x": x.to_sparse()})
            self.gate(torch.arange(3))
            y = torch.vmap(lambda row: torch.tanh(row) * self.inner(row).sum())(x)
            return checkpoint(self.inner, y, use_reentrant=False)

    class Top(nn.Module):
        def __init__(self):
            super().__init__()
            self.odd, self.same, self.last = Odd(), None, nn.Linear(12, 3)
            self.same = self.odd

        def forward(self, x):
            return self.last(self.same(self.odd(x)))

    model = Top()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer)
    train(copy.deepcopy(model), optimizer)


def squares():
    """A module of the script's own whose squares are not finite, from the fourth step on."""

    class Power(nn.Module):
        def forward(self, x):
            centred = x - x.mean()
            return centred * centred

    model = nn.Sequential(nn.Linear(12, 6), Power(), nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    train(model, optimizer, 3)
    train(model, optimizer, 3, 1e25 * X)


def given():
    """A layer that is given NaN by the forward of the script's own that calls it."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = nn.Sequential(nn.Linear(12, 3))

        def forward(self, x):
            scores = x @ x.T
            return self.proj(scores.softmax(-1) @ x)

    model = Attention()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    train(model, optimizer, 3)
    train(model, optimizer, 3, 1e25 * X)


def squashed():
    """NaN that a block of the script's own makes between a layer and the function which it calls next."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = nn.Linear(12, 6)

        def forward(self, x):
            projected = self.proj(x)
            centred = projected.square() - projected.square()
            return F.relu(centred)

    model = nn.Sequential(Block(), nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    train(model, optimizer, 3)
    train(model, optimizer, 3, 1e25 * X)


def in_turn():
    """Two models that one step calls one after the other: a recurrence behind an encoder, and a part that has none."""

    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.last = nn.LSTM(10, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.last(F.relu(self.lstm(x)[0][:, -1]))

    encoder, reader, scale = nn.Linear(2, 10), Reads(), nn.Linear(3, 3)
    parts = [*encoder.parameters(), *reader.parameters(), *scale.parameters()]
    optimizer = torch.optim.SGD(parts, lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(scale(reader(encoder(X.view(32, 6, 2)))), Y).backward()
        optimizer.step()


globals()[sys.argv[1]]()
