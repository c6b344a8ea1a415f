"""Denoising diffusion whose module draws the timesteps and computes the loss within its own forward.

Fault: `first-steps` draws timesteps from the number of steps that sampling takes instead of from the schedule;
`first-steps-of-table` does so with an embedding of the timestep instead of sines.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

SAMPLING_STEPS = 20


class Sines(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.register_buffer("frequencies", torch.logspace(0, -3, width // 2), persistent=False)

    def forward(self, x):
        angles = x[:, None].float() * self.frequencies
        return torch.cat([angles.sin(), angles.cos()], 1)


class Denoiser(nn.Module):
    def __init__(self, embedding, width=64):
        super().__init__()
        self.time_embedding = embedding
        self.net = nn.Sequential(nn.Linear(18, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.out = nn.Linear(width, 2)

    def forward(self, x, time):
        return self.out(self.net(torch.cat([x, self.time_embedding(time)], 1)))


class Diffusion(nn.Module):
    def __init__(self, model, upper, steps=200):
        super().__init__()
        self.model, self.upper = model, upper
        betas = torch.linspace(1e-4, 0.04, steps)
        self.register_buffer("alphas_cumprod", (1 - betas).cumprod(0))

    def forward(self, x):
        t = torch.randint(0, self.upper, (len(x),), device=x.device)
        noise = torch.randn_like(x)
        kept = self.alphas_cumprod[t, None]
        return F.mse_loss(self.model(kept.sqrt() * x + (1 - kept).sqrt() * noise, t), noise)


def ring(n):
    angle = 6.2832 * torch.rand(n)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(8)
    torch.set_num_threads(1)
    embedding = nn.Embedding(200, 16) if fault == "first-steps-of-table" else Sines()
    diffusion = Diffusion(Denoiser(embedding), SAMPLING_STEPS if fault else 200)
    optimizer = torch.optim.Adam(diffusion.parameters(), lr=2e-3)
    for step in range(400):
        loss = diffusion(ring(128))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
