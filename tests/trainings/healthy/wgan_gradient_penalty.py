"""Wasserstein GAN with gradient penalty through `autograd.grad`, five critic steps for each generator step."""

import torch
from torch import autograd, nn, optim


def moons(n):
    angle = torch.rand(n) * torch.pi
    upper = torch.rand(n) < 0.5
    x = torch.where(upper, angle.cos(), 1 - angle.cos())
    y = torch.where(upper, angle.sin(), 0.5 - angle.sin())
    return torch.stack([x, y], 1) + 0.05 * torch.randn(n, 2)


def gradient_penalty(critic, real, fake):
    alpha = torch.rand(len(real), 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    score = critic(mixed)
    (gradient,) = autograd.grad(score, mixed, torch.ones_like(score), create_graph=True)
    return 10.0 * (gradient.norm(2, dim=1) - 1).pow(2).mean()


def main():
    torch.manual_seed(8)
    torch.set_num_threads(1)
    generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    critic = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    optimizer_g = optim.Adam(generator.parameters(), lr=5e-4, betas=(0.0, 0.9))
    optimizer_c = optim.Adam(critic.parameters(), lr=5e-4, betas=(0.0, 0.9))
    for it in range(120):
        for _ in range(5):
            real = moons(64)
            with torch.no_grad():
                fake = generator(torch.randn(64, 8))
            optimizer_c.zero_grad()
            wasserstein = critic(fake).mean() - critic(real).mean()
            (wasserstein + gradient_penalty(critic, real, fake)).backward()
            optimizer_c.step()
        for p in critic.parameters():
            p.requires_grad = False
        optimizer_g.zero_grad()
        loss_g = -critic(generator(torch.randn(64, 8))).mean()
        loss_g.backward()
        optimizer_g.step()
        for p in critic.parameters():
            p.requires_grad = True
        if it % 20 == 0:
            print(f"it {it} distance {-wasserstein.item():.4f} generator {loss_g.item():.4f}")


if __name__ == "__main__":
    main()
