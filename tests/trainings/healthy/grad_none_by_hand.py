"""Clears gradients with `p.grad = None` in a loop of its own, without calling `zero_grad` at all."""

import torch
from torch import nn

torch.manual_seed(4)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-4)
for iteration in range(500):
    for p in model.parameters():
        p.grad = None
    state = torch.rand(64, 3) * 4 - 2
    target = torch.stack([state[:, 1], torch.sin(state[:, 0]) - 0.1 * state[:, 1], state[:, 2] * 0.9], dim=1)
    loss = nn.functional.smooth_l1_loss(model(state), target)
    loss.backward()
    optimizer.step()
    if iteration % 100 == 0:
        print("iteration", iteration, "loss", loss.item())
