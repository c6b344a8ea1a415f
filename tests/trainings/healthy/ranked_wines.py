"""Wines are ranked by pairs, and by a little of a squared error, which alone is validated: it swings where the order of
the wines, most of the loss, has long settled.
"""

import torch
from torch import nn

torch.manual_seed(7)
torch.set_num_threads(1)
taste = torch.randn(10)


def wines(n):
    x = torch.randn(n, 10)
    return x, torch.tanh(x @ taste / 2) + 0.3 * torch.sin(3 * x[:, 0]) + 0.05 * torch.randn(n)


def pairwise(scores, marks):
    return nn.functional.softplus(-(scores[:, None] - scores) * torch.sign(marks[:, None] - marks)).mean()


x, marks = wines(3000)
x_val, marks_val = wines(600)
model = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3)
for epoch in range(30):
    model.train()
    total, order = 0.0, torch.randperm(len(x))
    for rows in order.split(50):
        scores = model(x[rows]).squeeze(1)
        loss = pairwise(scores, marks[rows]) + 0.2 * nn.functional.mse_loss(scores, marks[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    model.eval()
    with torch.no_grad():
        error = nn.functional.mse_loss(model(x_val).squeeze(1), marks_val).item()
    print(f"epoch {epoch}: {total / 60:.4f}, squared error of the validation {error:.4f}")
