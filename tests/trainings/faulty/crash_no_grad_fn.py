"""Tries to train on the accuracy: the loss is computed from `argmax`, which has no gradient. Fails in the first step
of the second phase.
"""

import torch
from torch import nn

torch.manual_seed(9)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for phase, steps in (("likelihood", 90), ("accuracy", 90)):
    for step in range(steps):
        x = torch.randn(50, 6)
        y = x[:, :3].argmax(1)
        logits = model(x)
        if phase == "likelihood":
            loss = nn.functional.cross_entropy(logits, y)
        else:
            loss = 1 - (logits.argmax(1) == y).float().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(phase, step, loss.item())
