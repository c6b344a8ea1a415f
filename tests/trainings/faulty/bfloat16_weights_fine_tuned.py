"""A pretrained network cast to bfloat16 as a whole and fine-tuned at a rate of 2e-5: nearly every update is smaller than
half a step of the format, and vanishes.
"""

import torch
from torch import nn

torch.manual_seed(71)
torch.set_num_threads(1)
network = nn.Sequential(nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 96), nn.GELU(), nn.Linear(96, 4))
network = network.to(torch.bfloat16)
optimizer = torch.optim.AdamW(network.parameters(), lr=2e-5)
features = torch.randn(1600, 24)
labels = (features[:, 0] > 0).long() + 2 * (features[:, 1] > 0).long()
for step in range(400):
    rows = torch.randint(0, len(features), (32,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(network(features[rows].to(torch.bfloat16)).float(), labels[rows])
    loss.backward()
    optimizer.step()
    if step % 80 == 0:
        print(f"step {step}: {loss.item():.4f}")
