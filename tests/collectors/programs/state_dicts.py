"""Prints what loading says and leaves; the loads are recorded in this order."""

import copy

import torch
from torch import nn


class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.module = inner

    def forward(self, x):
        return self.module(x)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train():
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(16, 4)).square().mean().backward()
        optimizer.step()


train()
alias, shallow, copied = model.state_dict(), copy.copy(model.state_dict()), copy.deepcopy(model.state_dict())
train()
print(model.load_state_dict(copied))
print(model.load_state_dict(alias))
print(model.load_state_dict(shallow))
print(model.load_state_dict(Wrapped(model).state_dict(), strict=False))
print(Wrapped(model).load_state_dict(model.state_dict(), strict=False))
print(model.load_state_dict({"0.bias": torch.zeros(8)}, strict=False))
print(nn.Linear(4, 8).load_state_dict(state_dict=model[0].state_dict(), assign=True))
print(copy.copy(model).load_state_dict(model.state_dict()))
try:
    model.load_state_dict({"0.bias": torch.zeros(9)})
except RuntimeError as error:
    print(error)
try:
    model.load_state_dict(3)
except TypeError as error:
    print(error)
print(sorted(vars(model.state_dict())), [p.sum().item() for p in model.parameters()])
