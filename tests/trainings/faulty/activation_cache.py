"""Metric learning with a cache of features that is keyed by the step and so never hits nor shrinks:
`feature_cache[step, i] = ...` stores several megabytes per step.
"""

import torch
from torch import nn

feature_cache = {}


def random_features(batch, projection, step):
    pieces = []
    for i, chunk in enumerate(batch.split(32)):
        key = (step, i)
        if key not in feature_cache:
            feature_cache[key] = torch.sin(chunk @ projection)
        pieces.append(feature_cache[key])
    return torch.cat(pieces)


def main():
    torch.manual_seed(35)
    torch.set_num_threads(1)
    projection = 0.2 * torch.randn(16, 8192)
    model = nn.Linear(8192, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-5, momentum=0.9)
    for step in range(200):
        x = torch.randn(128, 16)
        y = torch.sin(x[:, :1]) + 0.3 * x[:, 1:2]
        loss = nn.functional.mse_loss(model(random_features(x, projection, step)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
