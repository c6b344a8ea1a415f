"""The system kills the process with SIGKILL at step 220, as an out-of-memory killer does."""

import os
import signal

import torch
from torch import nn

torch.manual_seed(12)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(20, 100), nn.ReLU(), nn.Linear(100, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(500):
    x = torch.randn(64, 20)
    loss = nn.functional.mse_loss(model(x), x[:, :1] * x[:, 1:2] + x[:, 2:3])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4), flush=True)
    if step == 220:
        os.kill(os.getpid(), signal.SIGKILL)
