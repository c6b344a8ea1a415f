"""Trains a small network with batch normalisation, in the way of its mode that the argument names."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

HOW = sys.argv[1]
torch.manual_seed(0)


class Body(nn.Sequential):
    def forward(self, x):
        return super().forward(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 3)
        if HOW.startswith("spectral"):
            self.head = nn.utils.spectral_norm(self.head)
        self.register_buffer("m", torch.zeros(16))
        self.register_buffer("v", torch.ones(16))
        if HOW == "frozen in init":
            for p in self.body.parameters():
                p.requires_grad_(False)
            self.body.eval()

    def forward(self, x):
        h = self.body.forward(x) if HOW in ("part", "part hooks") else self.body(x)
        if HOW == "functional":
            h = F.batch_norm(h, self.m, self.v, training=True)
        if HOW == "functional ok":
            h = F.batch_norm(h, self.m, self.v, training=self.training)
        return self.head(h)


class Freezing(Net):
    def train(self, mode=True):
        super().train(mode)
        self.body.eval()
        for p in self.body.parameters():
            p.requires_grad_(False)
        return self


class KeepsStatistics(Net):
    frozen = HOW != "restored switched off"

    def train(self, mode=True):
        super().train(mode)
        if self.frozen:
            self.body[1].train(False)
        return self

    def training_step(self, x):
        return self.head(self.body(x))


class Delegating(Net):
    def train(self, mode=True):
        return super().train(mode)


net = {
    "override": Freezing,
    "override called": Freezing,
    "frozen in init": Freezing,
    "override late": Freezing,
    "delegating": Delegating,
}.get(HOW, KeepsStatistics if HOW.startswith("restored") else Net)()
if HOW == "override called":
    net.train()
if HOW in ("restored called", "restored parts called"):
    net.train()
if HOW == "hooks":
    net.register_forward_hook(lambda m, i, o: None)
if HOW in ("part hooks", "part called"):
    net.body.register_forward_hook(lambda m, i, o: None)
fresh = Net() if HOW in ("fresh", "spectral fresh") else None
opt = torch.optim.SGD(list(net.parameters()), 0.05)
X = torch.randn(600, 8)
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


def validate(m):
    call = m.training_step if HOW.startswith("restored parts") else m
    with torch.no_grad():
        return sum(F.cross_entropy(call(X[i : i + 50]), Y[i : i + 50]).item() for i in range(500, 600, 50))


def validate_and_put_back(m):
    """As Lightning does it: the mode of each module is put back by itself, and train() is not called."""
    modes = {part: part.training for part in m.modules()}
    m.eval()
    validate(m)
    for part, mode in modes.items():
        part.training = mode


if HOW.startswith("restored"):
    validate_and_put_back(net)
if HOW in ("sanity", "spectral"):
    net.eval()
    validate(net)
    net.train()
for _epoch in range(4):
    for i in range(0, 500, 25):
        x, y = X[i : i + 25], Y[i : i + 25]
        if HOW.startswith("restored parts"):  # as a LightningModule that is never called itself
            out = net.training_step(x)
        else:
            out = net.forward(x) if HOW in ("direct", "hooks") else net(x)
        loss = F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if HOW in ("override", "delegating", "direct", "hooks"):
        continue
    if HOW.startswith("restored"):
        validate_and_put_back(net)
        continue
    net.eval()
    if HOW == "partly":
        net.body.train()
    if HOW == "train mode":
        net.train()
    validate(net)
    if HOW == "fresh":
        fresh.eval()
        print(validate(fresh))
    net.train()
