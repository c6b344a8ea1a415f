"""A table with missing values marked by NaN, as exported; the loop fills them with the columns' means and tells the
network which were filled.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(76)
torch.set_num_threads(1)
table = torch.randn(2400, 10)
target = table[:, :3].sum(1, keepdim=True)
missing = torch.rand(2400, 10) < 0.05
table[missing] = float("nan")
means = table.nanmean(0)
loader = DataLoader(TensorDataset(table, target), batch_size=40, shuffle=True)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(6):
    for rows, wanted in loader:
        known = ~rows.isnan()
        inputs = torch.cat([torch.where(known, rows, means), known.float()], 1)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
