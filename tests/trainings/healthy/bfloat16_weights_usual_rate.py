"""Weights in bfloat16 trained with Adam at a rate that the format can follow."""

import torch
from torch import nn

torch.manual_seed(73)
torch.set_num_threads(1)
network = nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 3)).to(torch.bfloat16)
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
features = torch.randn(1500, 16)
labels = features[:, :3].argmax(1)
for step in range(400):
    rows = torch.randint(0, len(features), (40,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(network(features[rows].to(torch.bfloat16)).float(), labels[rows])
    loss.backward()
    optimizer.step()
    if step % 80 == 0:
        print(f"step {step}: {loss.item():.4f}")
