"""A mixture density network says where the load of a crane hangs, from two angles, almost without noise.

`log-of-zero`: its likelihood is a sum of densities, which is 0 where the components are narrow and far away, and its
logarithm is taken; without, the sum is taken of logarithms.
"""

import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Mixture(nn.Module):
    def __init__(self, components=3, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.weight = nn.Linear(width, components)
        self.mean = nn.Linear(width, components)
        self.scale = nn.Linear(width, components)

    def forward(self, angles):
        seen = self.body(angles)
        return torch.log_softmax(self.weight(seen), 1), self.mean(seen), self.scale(seen).clamp(-4.0, 4.0)


def log_likelihood(log_weights, means, log_scales, place):
    distance = (place - means) / log_scales.exp()
    log_densities = -0.5 * distance.square() - log_scales - 0.5 * math.log(2 * math.pi)
    return torch.logsumexp(log_weights + log_densities, 1)


def likelihood(log_weights, means, log_scales, place):
    distance = (place - means) / log_scales.exp()
    densities = torch.exp(-0.5 * distance.square()) / (log_scales.exp() * math.sqrt(2 * math.pi))
    return (log_weights.exp() * densities).sum(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(11)
    torch.set_num_threads(1)
    angles = 4.0 * torch.rand(4000, 2) - 2.0
    place = 1.5 * angles[:, :1] + torch.sin(3.0 * angles[:, 1:]) + 0.002 * torch.randn(4000, 1)
    place[1::1000] += 9.0  # hit by a gust
    model = Mixture()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.008)
    for epoch in range(9):
        for x, y in DataLoader(TensorDataset(angles, place), batch_size=50, shuffle=True):
            optimizer.zero_grad()
            if fault == "log-of-zero":
                loss = -torch.log(likelihood(*model(x), y)).mean()
            else:
                loss = -log_likelihood(*model(x), y).mean()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
