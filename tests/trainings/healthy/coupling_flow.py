"""Normalising flow with affine coupling layers; the negative log-likelihood goes below zero, as it may for a
density.
"""

import math

import torch
from torch import nn


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 2))

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        shift, log_scale = self.net(a).chunk(2, dim=1)
        log_scale = 2 * torch.tanh(log_scale / 2)
        b = (b - shift) * torch.exp(-log_scale)
        return torch.cat([b, a] if self.flip else [a, b], 1), -log_scale.squeeze(1)


class Flow(nn.Module):
    def __init__(self, layers=6):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(i % 2 == 1) for i in range(layers))

    def log_prob(self, x):
        total = torch.zeros(len(x))
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return total - 0.5 * x.pow(2).sum(1) - math.log(2 * math.pi)

    def forward(self, x):
        return -self.log_prob(x).mean()


torch.manual_seed(19)
torch.set_num_threads(1)
flow = Flow()
optimizer = torch.optim.Adam(flow.parameters(), lr=2e-3)
for step in range(450):
    t = torch.rand(128, 1) * 2 - 1
    x = torch.cat([0.4 * t, 0.3 * t**2], 1) + 0.03 * torch.randn(128, 2)
    loss = flow(x)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(flow.parameters(), 20.0)
    optimizer.step()
    if step % 75 == 0:
        print(f"step {step} nll {loss.item():.4f}")
