"""Denoising diffusion on a two-dimensional set: the loss is noisy by nature and has a floor; samples drawn under
no_grad.
"""

import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(40, 16)
        self.net = nn.Sequential(nn.Linear(18, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], 1))


def spiral(n):
    r = torch.rand(n).sqrt()
    return torch.stack([r * (9 * r).cos(), r * (9 * r).sin()], 1) * 1.5


@torch.no_grad()
def sample(model, alphas, n):
    betas = 1 - alphas
    bars = alphas.cumprod(0)
    x = torch.randn(n, 2)
    for k in reversed(range(40)):
        noise = model(x, torch.full((n,), k))
        x = (x - betas[k] / (1 - bars[k]).sqrt() * noise) / alphas[k].sqrt()
        if k:
            x = x + betas[k].sqrt() * torch.randn_like(x)
    return x


def main():
    torch.manual_seed(42)
    torch.set_num_threads(1)
    alphas = 1 - torch.linspace(1e-3, 0.15, 40)
    bars = alphas.cumprod(0)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(500):
        x, t = spiral(128), torch.randint(0, 40, (128,))
        noise = torch.randn_like(x)
        noisy = bars[t, None].sqrt() * x + (1 - bars[t, None]).sqrt() * noise
        loss = (model(noisy, t) - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 125 == 124:
            spread = sample(model, alphas, 100).std().item()
            print(f"step {step + 1} loss {loss.item():.4f} sample spread {spread:.3f}")


if __name__ == "__main__":
    main()
