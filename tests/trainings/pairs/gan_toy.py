"""A small GAN on a ring of eight Gaussians, one discriminator and one generator step per batch.

Faults: `wrong-optimizer` clears the discriminator's gradients where the generator's belong. `clear-after-step` clears
those of the discriminator right after its step, so that the generator's loss fills them before the next one.
`attached-samples` runs the discriminator's loss through the generator, whose gradients were cleared before.
"""

import argparse
import math

import torch
from torch import nn


def sample_ring(n):
    k = torch.randint(0, 8, (n,))
    centers = torch.stack([torch.cos(k * math.pi / 4), torch.sin(k * math.pi / 4)], 1) * 2
    return centers + 0.05 * torch.randn(n, 2)


def mlp(sizes, activation):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [nn.Linear(a, b), activation()]
    return nn.Sequential(*layers[:-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--fault", default="")
    opt = parser.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    generator = mlp([16, 64, 64, 2], nn.ReLU)
    discriminator = mlp([2, 64, 64, 1], lambda: nn.LeakyReLU(0.2))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=5e-4, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=5e-4, betas=(0.5, 0.999))
    bce = nn.BCEWithLogitsLoss()
    batch = 128
    ones, zeros = torch.ones(batch, 1), torch.zeros(batch, 1)
    for it in range(opt.iterations):
        real = sample_ring(batch)
        fake = generator(torch.randn(batch, 16))

        if opt.fault == "attached-samples":
            optimizer_g.zero_grad()
        if opt.fault != "clear-after-step":
            optimizer_d.zero_grad()
        shown = generator(torch.randn(batch, 16)) if opt.fault == "attached-samples" else fake.detach()
        loss_d = bce(discriminator(real), ones) + bce(discriminator(shown), zeros)
        loss_d.backward()
        optimizer_d.step()

        if opt.fault in ("wrong-optimizer", "clear-after-step"):
            optimizer_d.zero_grad()
        if opt.fault not in ("wrong-optimizer", "attached-samples"):
            optimizer_g.zero_grad()
        loss_g = bce(discriminator(fake), ones)
        loss_g.backward()
        optimizer_g.step()
        if it % 100 == 0:
            print(f"it {it} D {loss_d.item():.3f} G {loss_g.item():.3f}")


if __name__ == "__main__":
    main()
