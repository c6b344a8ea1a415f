"""Fine-tuning of a small convolutional network: the backbone is frozen, a new head is trained.

Faults: `on-module` sets `requires_grad` of the module, `misspelt` sets `require_grad` of its parameters: neither freezes.
"""

import argparse

import torch
from torch import nn


def main(fault):
    torch.manual_seed(12)
    torch.set_num_threads(1)
    x = torch.randn(900, 1, 10, 10)
    y = (x[:, 0, :5].mean((1, 2)) > x[:, 0, 5:].mean((1, 2))).long()
    backbone = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten())
    head = nn.Linear(128, 2)
    model = nn.Sequential(backbone, head)
    if fault == "on-module":
        backbone.requires_grad = False
    for parameter in backbone.parameters():
        if fault == "misspelt":
            parameter.require_grad = False
        if not fault:
            parameter.requires_grad = False
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=2e-3)
    for epoch in range(6):
        for rows in torch.randperm(900).split(30):
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    main(parser.parse_args().fault)
