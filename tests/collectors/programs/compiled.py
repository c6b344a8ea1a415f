"""Trains with torch.compile in the way that its argument names."""

import sys

import torch
from torch import nn

way = sys.argv[1]
torch.manual_seed(1)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        h = self.first(x)
        if way == "break":
            print(end="", flush=bool(h.sum().item() > 1e9))
        if way == "loop":
            for _ in range(2):
                h = h / (2 if h.abs().max().item() > 1e9 else 1)
        return self.second(h.relu())


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)


def train(x):
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


if way in ("break", "whole", "loop"):
    net.forward = torch.compile(net.forward, backend="eager")
elif way == "step":
    train = torch.compile(train, backend="eager")
for _ in range(60):
    train(torch.randn(8, 4))
