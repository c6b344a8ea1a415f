"""Denoising diffusion with a schedule of 200 steps and a sinusoidal embedding of the timestep.

Faults: `first-steps` draws timesteps from the number of steps that sampling takes instead of from the schedule;
`first-beside` does so where the model gets a fraction of the schedule beside its input. `drawn-twice` compares the
predictions with noise that is not in the input. `beside` is healthy.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

SAMPLING_STEPS = 20


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.register_buffer("frequencies", torch.logspace(0, -3, 8), persistent=False)
        self.net = nn.Sequential(nn.Linear(18, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.out = nn.Linear(width, 2)

    def forward(self, x, timestep):
        angles = timestep[:, None].float() * self.frequencies
        return self.out(self.net(torch.cat([x, angles.sin(), angles.cos()], 1)))


def beside(width=64):
    return nn.Sequential(nn.Linear(3, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))


class Diffusion:
    def __init__(self, steps=200):
        self.steps = steps
        self.betas = torch.linspace(1e-4, 0.04, steps)
        self.alphas_cumprod = (1 - self.betas).cumprod(0)

    def noisy(self, x, t, noise):
        kept = self.alphas_cumprod[t, None]
        return kept.sqrt() * x + (1 - kept).sqrt() * noise

    def loss(self, model, x, upper):
        t = torch.randint(0, upper, (len(x),))
        noise = torch.randn_like(x)
        return F.mse_loss(model(self.noisy(x, t, noise), t), noise)

    def disturbed(self, x, t):
        noise = torch.randn_like(x)
        return self.noisy(x, t, noise), noise

    def loss_drawn_twice(self, model, x, upper):
        t = torch.randint(0, upper, (len(x),))
        target = torch.randn_like(x)
        given, _ = self.disturbed(x, t)
        return F.mse_loss(model(given, t), target)

    def loss_beside(self, model, x, upper):
        t = torch.randint(0, upper, (len(x),))
        noise = torch.randn_like(x)
        given = torch.cat([self.noisy(x, t, noise), t[:, None] / self.steps], 1)
        return F.mse_loss(model(given), noise)


def ring(n):
    angle = 6.2832 * torch.rand(n)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(8)
    torch.set_num_threads(1)
    apart = "beside" in fault
    diffusion, model = Diffusion(), beside() if apart else Denoiser()
    loss_of = diffusion.loss_beside if apart else diffusion.loss
    loss_of = diffusion.loss_drawn_twice if fault == "drawn-twice" else loss_of
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(400):
        upper = SAMPLING_STEPS if fault.startswith("first") else diffusion.steps
        loss = loss_of(model, ring(128), upper)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
