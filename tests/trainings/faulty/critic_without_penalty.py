"""Wasserstein critic with neither weight clipping nor gradient penalty: nothing bounds it, scores and gradients grow
and grow.
"""

import torch
from torch import nn


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, 64),
            nn.LeakyReLU(0.2),
            nn.Linear(64, 64),
            nn.LeakyReLU(0.2),
            nn.Linear(64, 64),
            nn.LeakyReLU(0.2),
            nn.Linear(64, 1),
        )

    def forward(self, x):
        return self.layers(x)


if __name__ == "__main__":
    torch.manual_seed(97)
    torch.set_num_threads(1)
    critic = Critic()
    optimizer = torch.optim.SGD(critic.parameters(), lr=2e-3)
    for step in range(1, 601):
        real = torch.randn(64, 6) * 0.5 + 0.7
        fake = torch.randn(64, 6)
        optimizer.zero_grad()
        loss = critic(fake).mean() - critic(real).mean()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            norm = sum(p.grad.square().sum() for p in critic.parameters()).sqrt().item()
            print(f"step {step} critic loss {loss.item():.4g} gradient norm {norm:.3g}")
