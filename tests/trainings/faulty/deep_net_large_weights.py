"""Twelve layers without normalisation, every weight drawn with a standard deviation of 0.5 (`nn.init.normal_(...,
std=0.5)`).
"""

import torch
from torch import nn


def initialize(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.5)
        nn.init.zeros_(module.bias)


def main():
    torch.manual_seed(77)
    torch.set_num_threads(1)
    layers = [nn.Linear(16, 48), nn.ReLU()]
    for _ in range(10):
        layers += [nn.Linear(48, 48), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(48, 1))
    model.apply(initialize)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100, 0.5)
    for step in range(300):
        x = torch.randn(64, 16)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 30 == 0:
            print(f"step {step} loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
