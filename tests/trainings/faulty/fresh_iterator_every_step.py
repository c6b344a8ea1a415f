"""Step-based training that asks `next(iter(loader))` in every step: each call shuffles a million indices anew."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(28)
torch.set_num_threads(1)

x = torch.randn(400_000, 4)
y = (x[:, 0] - x[:, 1] ** 2 + 0.5).gt(0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
opt = torch.optim.Adam(net.parameters(), lr=5e-3)

for step in range(120):
    xb, yb = next(iter(loader))
    loss = F.cross_entropy(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step:>4} loss {loss.item():.4f}")
