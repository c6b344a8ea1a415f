"""Loads weights, does with them what its argument names, and trains three steps."""

import copy
import sys

import torch
from torch import nn
from torch.nn.utils import prune

how = sys.argv[1]
torch.manual_seed(0)


def make():
    return nn.Sequential(nn.Embedding(40, 12), nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 24), nn.Linear(24, 4))


def layers(model):
    return [module for module in model.modules() if isinstance(module, nn.Linear | nn.Embedding)]


def fill(module):
    if isinstance(module, nn.Linear | nn.Embedding):
        module.weight.data.normal_(0.0, 0.05)


def replace(module):
    if isinstance(module, nn.Linear | nn.Embedding):
        module.weight = nn.Parameter(torch.randn(module.weight.shape) * 0.05)


state, other = copy.deepcopy(make().state_dict()), copy.deepcopy(make().state_dict())
model = make()
if how == "filled first":
    model.apply(fill)
model.load_state_dict(state)
if how == "evaluated":
    with torch.no_grad():
        model(torch.arange(8))
if how in ("filled", "evaluated", "loaded again"):
    model.apply(fill)
if how == "replaced":
    model.apply(replace)
if how == "uniform":
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.1, 0.1)
if how == "loaded again":
    model.load_state_dict(state)
if how == "another file":
    model.load_state_dict(other)
if how == "averaged":
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.lerp_(other[name], 0.5)
if how == "shrunk":
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.4).add_(torch.randn_like(parameter) * 0.01)
if how == "cast":
    model.bfloat16()
if how == "pruned":
    for layer in layers(model):
        prune.l1_unstructured(layer, "weight", 0.8)
if how == "pruned by hand":
    for layer in layers(model):
        layer.weight.data.mul_(torch.rand_like(layer.weight) < 0.2)
if how == "new ends":
    model[0], model[-1] = nn.Embedding(50, 12), nn.Linear(24, 7)
if how == "upper half":
    model[3:].apply(fill)
if how == "tied":
    model[-1] = nn.Linear(24, 40)
    model[0] = nn.Embedding(40, 24)
    model[-1].weight = model[0].weight
    model[1] = nn.Linear(24, 24)
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
for _ in range(3):
    ids = torch.randint(0, 40, (16,))
    loss = model(ids).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{sum(float(p.detach().sum()) for p in model.parameters()):.9f}")
