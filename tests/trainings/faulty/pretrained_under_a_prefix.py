"""A classifier is to start from an encoder that was trained under DataParallel's names; strict=False hides the rest."""

import io

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
torch.set_num_threads(1)


def encoder():
    return nn.Sequential(nn.Linear(20, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 24))


file = io.BytesIO()
torch.save({"module." + name: tensor for name, tensor in encoder().state_dict().items()}, file)
file.seek(0)

body = encoder()
body.load_state_dict(torch.load(file), strict=False)
head = nn.Linear(24, 3)
inputs = torch.randn(900, 20)
targets = inputs[:, :3].argmax(1)
optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-3)
for _ in range(4):
    for x, y in DataLoader(TensorDataset(inputs, targets), batch_size=30, shuffle=True):
        loss = F.cross_entropy(head(body(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
