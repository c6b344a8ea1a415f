"""Separate two interleaved spirals with a small network, as one flat script.

Faults: `missing-zero-grad` never clears the gradients; `zero-grad-after-backward` clears them between backward and
step; `detached-loss` builds the loss from a number and so cuts it from the network.
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=25)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--fault", default="")
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)

n = 2400
radius = torch.rand(n).sqrt()
label = (torch.arange(n) % 2).float()
angle = radius * 3 * torch.pi + label * torch.pi
x = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1) * 2 + 0.03 * torch.randn(n, 2)
x_train, y_train, x_test, y_test = x[:2000], label[:2000], x[2000:], label[2000:]

model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
criterion = nn.BCEWithLogitsLoss()

for epoch in range(args.epochs):
    order = torch.randperm(len(x_train))
    total = 0.0
    for start in range(0, len(order), 64):
        index = order[start : start + 64]
        if args.fault not in ("missing-zero-grad", "zero-grad-after-backward"):
            optimizer.zero_grad()
        loss = criterion(model(x_train[index]).squeeze(1), y_train[index])
        if args.fault == "detached-loss":
            loss = torch.tensor(loss.item(), requires_grad=True)
        loss.backward()
        if args.fault == "zero-grad-after-backward":
            optimizer.zero_grad()
        optimizer.step()
        total += loss.item() * len(index)
    if epoch % 5 == 4:
        model.eval()
        with torch.no_grad():
            logits = model(x_test).squeeze(1)
            accuracy = ((logits > 0) == (y_test > 0.5)).float().mean()
        model.train()
        print(f"epoch {epoch + 1}: train loss {total / len(x_train):.4f}, test accuracy {accuracy:.3f}")
