"""A network updated without an optimizer, its gradients cleared in the way that the argument names."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
how = sys.argv[1]
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))
x = torch.randn(64, 10)
for step in range(40):
    if how == "none" or (how == "not any more" and step < 16):
        for parameter in model.parameters():
            parameter.grad = None
    (model(x) - x[:, :1]).square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if how == "data":
                parameter.data.add_(parameter.grad, alpha=-0.01)
            else:
                parameter -= 0.01 * parameter.grad
    if how in ("zero", "data"):
        for parameter in model.parameters():
            parameter.grad.zero_()
