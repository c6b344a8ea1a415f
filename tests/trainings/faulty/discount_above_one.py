"""Value iteration by bootstrapping with a discount of 1.1 (meant: 0.9): values, loss and gradients grow without end."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Options:
    gamma: float = 1.1
    lr: float = 0.001
    steps: int = 900
    batch: int = 64


def main(options):
    torch.manual_seed(99)
    torch.set_num_threads(1)
    value = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(value.parameters(), lr=options.lr)
    for step in range(options.steps):
        state = torch.rand(options.batch, 4)
        following = (state + 0.1 * torch.randn_like(state)).clamp(0, 1)
        reward = state[:, :1]
        with torch.no_grad():
            target = reward + options.gamma * value(following)
        loss = nn.functional.mse_loss(value(state), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4g} mean value {target.mean().item():.4g}")


if __name__ == "__main__":
    main(Options())
