"""Logistic regression by L-BFGS. The closure computes loss and gradients but does not clear the old gradients first."""

import torch
from torch import nn

torch.manual_seed(2)
torch.set_num_threads(1)
features = torch.randn(800, 10)
truth = torch.randn(10)
labels = (features @ truth + 0.5 * torch.randn(800) > 0).float()

model = nn.Linear(10, 1)
loss_fn = nn.BCEWithLogitsLoss()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=5)


def closure():
    output = model(features).squeeze(1)
    loss = loss_fn(output, labels) + 1e-3 * model.weight.pow(2).sum()
    loss.backward()
    return loss


for round_ in range(80):
    loss = optimizer.step(closure)
    if round_ % 10 == 0:
        print(f"round {round_}: {loss.item():.5f}")
