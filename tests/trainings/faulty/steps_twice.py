"""A helper steps the optimizer for its mixed-precision branch, and the loop steps it once more."""

import torch
from torch import nn


def apply_update(optimizer, loss, scaler=None):
    if scaler is not None:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()


torch.manual_seed(17)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(10, 64), nn.GELU(), nn.Linear(64, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
for step in range(500):
    x = torch.randn(40, 10)
    target = torch.stack([x[:, 0] * x[:, 1], x[:, 2].abs()], 1)
    loss = nn.functional.mse_loss(net(x), target)
    optimizer.zero_grad()
    apply_update(optimizer, loss)
    optimizer.step()
    if step % 100 == 0:
        print(step, f"{loss.item():.4f}")
