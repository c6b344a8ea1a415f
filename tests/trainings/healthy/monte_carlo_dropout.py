"""Monte-Carlo dropout by configuration: for uncertainty the Dropout modules alone are switched on in evaluation."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    epochs: int = 5
    mc_dropout: bool = True
    mc_samples: int = 8
    dropout: float = 0.2


def enable_mc_dropout(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.train()


@torch.no_grad()
def predict_with_uncertainty(model, x, config):
    model.eval()
    if config.mc_dropout:
        enable_mc_dropout(model)
    samples = torch.stack([model(x) for _ in range(config.mc_samples)])
    return samples.mean(0), samples.std(0)


def main(config):
    torch.manual_seed(16)
    torch.set_num_threads(1)
    x = torch.rand(1600, 1) * 4 - 2
    y = x.pow(3) / 4 + 0.2 * torch.randn_like(x)
    grid = torch.linspace(-2, 2, 100).unsqueeze(1)
    model = nn.Sequential(
        nn.Linear(1, 80),
        nn.ReLU(),
        nn.Dropout(config.dropout),
        nn.Linear(80, 80),
        nn.ReLU(),
        nn.Dropout(config.dropout),
        nn.Linear(80, 1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(config.epochs):
        model.train()
        for index in torch.randperm(1600).split(32):
            loss = nn.functional.mse_loss(model(x[index]), y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean, spread = predict_with_uncertainty(model, grid, config)
        error = (mean - grid.pow(3) / 4).pow(2).mean().item()
        print(f"epoch {epoch} error {error:.4f} mean spread {spread.mean().item():.4f}")


if __name__ == "__main__":
    main(Config())
