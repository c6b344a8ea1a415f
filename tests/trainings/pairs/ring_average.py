"""A small GAN whose samples are drawn from an average of the generator's weights, scored now and then.

Faults: `slow-average` looks back on 10,000 steps where 500 are made. `forgotten-average` never updates the copy.
"""

import argparse
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn


def ring(n):
    k = torch.randint(0, 8, (n,))
    centers = torch.stack([torch.cos(k * math.pi / 4), torch.sin(k * math.pi / 4)], 1) * 2
    return centers + 0.05 * torch.randn(n, 2)


class Generator(nn.Module):
    def __init__(self, noise=16, width=64):
        super().__init__()
        self.noise = noise
        self.net = nn.Sequential(
            nn.Linear(noise, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
        )

    def forward(self, n):
        return self.net(torch.randn(n, self.noise))


@torch.no_grad()
def distance(generator, real):
    made = generator(len(real))
    return float((made.mean(0) - real.mean(0)).square().sum() + (made.std(0) - real.std(0)).square().sum())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--fault", default="")
    opt = parser.parse_args()
    decay = 0.9999 if opt.fault == "slow-average" else 0.98
    torch.manual_seed(5)
    torch.set_num_threads(1)
    generator = Generator()
    critic = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    average = copy.deepcopy(generator).eval().requires_grad_(False)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.99))
    optimizer_c = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.99))
    held_out = ring(500)
    for iteration in range(1, opt.iterations + 1):
        with torch.no_grad():
            made = generator(128)
        loss_c = F.softplus(-critic(ring(128))).mean() + F.softplus(critic(made)).mean()
        optimizer_c.zero_grad()
        loss_c.backward()
        optimizer_c.step()

        loss_g = F.softplus(-critic(generator(128))).mean()
        optimizer_g.zero_grad()
        loss_g.backward()
        optimizer_g.step()
        if opt.fault != "forgotten-average":
            with torch.no_grad():
                for mine, theirs in zip(average.parameters(), generator.parameters(), strict=True):
                    mine.lerp_(theirs, 1 - decay)
        if iteration % 100 == 0:
            print(f"{iteration} {distance(average, held_out):.3f}")


if __name__ == "__main__":
    main()
