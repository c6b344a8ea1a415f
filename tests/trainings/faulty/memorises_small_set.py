"""A large network on 120 noisy rows for 40 epochs: training loss goes to zero while validation loss rises from epoch
5 on.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(89)
torch.set_num_threads(1)
x, x_val = torch.randn(120, 30), torch.randn(1000, 30)
w = torch.randn(30) / 5
y = ((x @ w) > torch.randn(120)).long()
y_val = ((x_val @ w) > torch.randn(1000)).long()
loader = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)
model = nn.Sequential(nn.Linear(30, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(40):
    model.train()
    total = 0.0
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        total += loss.item() / len(loader)
    model.eval()
    with torch.no_grad():
        val_loss = criterion(model(x_val), y_val).item()
    if epoch % 5 == 4:
        print(f"epoch {epoch + 1} train {total:.4f} val {val_loss:.4f}")
