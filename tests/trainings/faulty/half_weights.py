"""The whole model is cast to float16 with `model.half()` and trained without any loss scaling."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(51)
torch.set_num_threads(1)
x = torch.randn(2000, 20)
y = (x[:, :4].sum(1) > 0).long() + (x[:, 4] > 1).long()
loader = DataLoader(TensorDataset(x.half(), y), batch_size=50, shuffle=True)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)).half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(8):
    total = 0.0
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(xb).float(), yb)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
