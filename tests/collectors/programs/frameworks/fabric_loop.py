"""A plain loop with Lightning Fabric. The mode is switched on the model, not on what Fabric made of it."""

import told
import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

told.seed()
x, y = told.samples()
fabric = Fabric(accelerator="cpu", devices=1)
model = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
called, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=0.01))
train = fabric.setup_dataloaders(DataLoader(TensorDataset(x[:128], y[:128]), batch_size=8, shuffle=True))
valid = fabric.setup_dataloaders(DataLoader(TensorDataset(x[128:], y[128:]), batch_size=16))
losses, evals = [], []
for _ in range(3):
    model.train()
    for inputs, targets in train:
        optimizer.zero_grad()
        loss = F.cross_entropy(called(inputs), targets)
        losses.append(loss.item())
        fabric.backward(loss)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        seen = [F.cross_entropy(called(inputs), targets).item() for inputs, targets in valid]
    evals.append(sum(seen) / len(seen))
told.tell(model, losses=losses, evals=evals)
