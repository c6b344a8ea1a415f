"""Solves u'' = -u with a network: derivatives of the output by `autograd.grad(..., create_graph=True)` inside the
loss.
"""

import torch
from torch import nn


def derivative(y, x):
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, t):
        return self.net(t)


torch.manual_seed(29)
torch.set_num_threads(1)
field = Field()
optimizer = torch.optim.Adam(field.parameters(), lr=3e-3)
start = torch.zeros(1, 1)
for step in range(400):
    t = (torch.rand(64, 1) * 4).requires_grad_()
    u = field(t)
    residual = derivative(derivative(u, t), t) + u
    t0 = start.clone().requires_grad_()
    u0 = field(t0)
    boundary = u0.square().mean() + (derivative(u0, t0) - 1).square().mean()
    loss = residual.square().mean() + 5 * boundary
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 80 == 0:
        print(f"step {step} loss {loss.item():.5f}")
