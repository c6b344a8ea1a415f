"""Hooks for saved tensors, as activation checkpointing and offloading have them: how often are they called?"""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, weight = torch.randn(8, 4), torch.tensor(0.5)
calls = 0


def unpack(tensor):
    global calls
    calls += 1
    return tensor


def weighted(inputs):
    return model(inputs).square().mean() * weight


def train(step):
    for _ in range(4):
        optimizer.zero_grad()
        step().backward()
        optimizer.step()


train(lambda: model(x).square().mean() / 4)
for _ in range(2):
    train(lambda: checkpoint(weighted, x, use_reentrant=False))
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        train(lambda: weighted(x))
print(calls, int(model[1].num_batches_tracked), float(model[1].running_mean.double().sum()))
