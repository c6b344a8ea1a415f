"""A training that does the same for long, then something else: validation with autograd, calls in pairs, a regulariser.

`--watched`: no habit is ever made of it.
"""

import sys

import torch
from torch import nn

if "--watched" in sys.argv:
    from tracelyze.collectors.program import habit

    habit.HABIT = 10**9

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []


def step(calls: int = 1, keep: bool = False, plain: bool = False) -> None:
    optimizer.zero_grad()
    losses = [model(torch.randn(8, 4)).square().mean() for _ in range(calls)]
    sum(losses).backward()
    if plain:
        model[0].weight.square().sum().mul(1e-3).backward()
    if keep:
        kept.append(model(torch.randn(2, 4)).mean() if len(kept) % 2 else losses[0])
    optimizer.step()


for _ in range(150):
    step()
for _ in range(4):  # validation with neither eval() nor no_grad()
    for _ in range(5):
        model(torch.randn(8, 4)).mean().item()
    for _ in range(150):
        step()
model(torch.randn(8, 4)).mean().item()  # a single such call
for _ in range(150):
    step()
model.eval()  # validation with autograd
for _ in range(5):
    model(torch.randn(8, 4)).mean().item()
model.train()
for _ in range(150):
    step(calls=2)
for _ in range(120):
    step()
for _ in range(120):
    step(plain=True)
for _ in range(120):
    step()
for _ in range(20):
    step(keep=True)
