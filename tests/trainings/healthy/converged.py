"""Learns an exactly linear map: the loss falls to zero and stays there, gradients vanish with it."""

import torch
from torch import nn

torch.manual_seed(17)
torch.set_num_threads(1)
a, b = torch.randn(12, 4), torch.randn(4)
model = nn.Linear(12, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.4)
for step in range(800):
    x = torch.randn(64, 12)
    loss = nn.functional.mse_loss(model(x), x @ a + b)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"{step} {loss.item():.3e}")
