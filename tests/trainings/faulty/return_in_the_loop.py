"""A return that stands in the loop over the epochs, where it belongs behind it."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(model, loader, epochs, lr):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for epoch in range(epochs):
        total = 0.0
        for inputs, targets in loader:
            loss = F.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.3f}")
        return model


torch.manual_seed(0)
inputs = torch.randn(4000, 24)
targets = (inputs[:, :6] * inputs[:, 6:12]).argmax(1)
loader = DataLoader(TensorDataset(inputs, targets), batch_size=20, shuffle=True)
model = train(nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 6)), loader, epochs=25, lr=1e-3)
print(f"trained: {sum(float(p.norm()) for p in model.parameters()):.3f}")
