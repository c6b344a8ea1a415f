"""Stochastic weight averaging from half-way on, BatchNorm statistics updated at the end, the average evaluated."""

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(39)
torch.set_num_threads(1)
x = torch.randn(3400, 10)
y = (x[:, :1] * x[:, 1:2] + x[:, 2:3]) + 0.1 * torch.randn(3400, 1)
loader = DataLoader(TensorDataset(x[:3000], y[:3000]), batch_size=50, shuffle=True)
model = nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 1))
averaged = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
scheduler = SWALR(optimizer, swa_lr=0.01, anneal_epochs=2)
for epoch in range(8):
    model.train()
    total = 0.0
    for features, target in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(features), target)
        loss.backward()
        optimizer.step()
        total += loss.item() / len(loader)
    if epoch >= 4:
        averaged.update_parameters(model)
        scheduler.step()
    print(f"epoch {epoch} loss {total:.4f}")
update_bn(loader, averaged)
averaged.eval()
with torch.no_grad():
    print(f"averaged model, held-out loss {nn.functional.mse_loss(averaged(x[3000:]), y[3000:]).item():.4f}")
