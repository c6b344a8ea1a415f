"""Flat script with BatchNorm and Dropout; `model.eval()` is missing above the validation loop."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(55)
torch.set_num_threads(1)

x = torch.randn(3600, 15)
y = (x[:, 0] * 2 + torch.sin(3 * x[:, 1]) + x[:, 2] * x[:, 3]).unsqueeze(1)
train_loader = DataLoader(TensorDataset(x[:3000], y[:3000]), batch_size=50, shuffle=True)
val_loader = DataLoader(TensorDataset(x[3000:], y[3000:]), batch_size=50)

model = nn.Sequential(
    nn.Linear(15, 80), nn.BatchNorm1d(80), nn.ReLU(), nn.Dropout(0.3), nn.Linear(80, 80), nn.ReLU(), nn.Linear(80, 1)
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=7)
mse = nn.MSELoss()

for epoch in range(7):
    model.train()
    train_loss = 0.0
    for xb, yb in train_loader:
        optimizer.zero_grad()
        loss = mse(model(xb), yb)
        loss.backward()
        optimizer.step()
        train_loss += loss.item() / len(train_loader)
    scheduler.step()
    val_loss = 0.0
    with torch.no_grad():
        for xb, yb in val_loader:
            val_loss += mse(model(xb), yb).item() / len(val_loader)
    print(f"epoch {epoch + 1}: train {train_loss:.4f} val {val_loss:.4f}")
