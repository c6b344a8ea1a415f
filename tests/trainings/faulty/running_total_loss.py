"""Regress particle energies. The epoch's running loss adds the loss tensors themselves, graphs included:
`running_loss += loss` lacks `.item()`.
"""

import torch
from torch import nn

torch.manual_seed(1)
torch.set_num_threads(1)
inputs = torch.randn(6400, 32)
energy = inputs[:, :8].pow(2).sum(1, keepdim=True).sqrt()

net = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
criterion = nn.MSELoss()

running_loss = 0.0
for step in range(500):
    rows = torch.randint(0, 6400, (64,))
    optimizer.zero_grad()
    loss = criterion(net(inputs[rows]), energy[rows])
    loss.backward()
    optimizer.step()
    running_loss += loss
    if (step + 1) % 100 == 0:
        print(f"step {step + 1}: mean loss so far {(running_loss / (step + 1)).item():.4f}")
