"""Convolutional denoiser with an exponential moving average of the weights; the average is what is evaluated.

Faults: `outputs-kept` keeps every reconstruction to make an animation; `batch-stats` leaves the average in train
mode while it is evaluated.
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn


def smooth_images(n, generator):
    coarse = torch.randn(n, 1, 4, 4, generator=generator)
    return F.interpolate(coarse, size=16, mode="bilinear", align_corners=False)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2))
        self.up = nn.Sequential(nn.ConvTranspose2d(12, 12, 2, stride=2), nn.BatchNorm2d(12), nn.ReLU())
        self.out = nn.Conv2d(12, 1, 3, padding=1)

    def forward(self, x):
        return self.out(self.up(self.down(x)))


class Average:
    def __init__(self, model, decay):
        self.model, self.decay = copy.deepcopy(model), decay
        for p in self.model.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for mean, p in zip(self.model.parameters(), model.parameters(), strict=True):
            mean.lerp_(p, 1 - self.decay)
        for mean, b in zip(self.model.buffers(), model.buffers(), strict=True):
            mean.copy_(b)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(23)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(4)
    held_out = smooth_images(64, generator)
    noisy_held_out = held_out + 0.5 * torch.randn(held_out.shape, generator=generator)
    model = Denoiser()
    ema = Average(model, 0.95)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    frames = []
    for step in range(args.steps):
        clean = smooth_images(32, generator)
        output = model(clean + 0.5 * torch.randn_like(clean))
        if args.fault == "outputs-kept":
            frames.append(output)
        loss = F.mse_loss(output, clean)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        ema.update(model)
        if step % 40 == 39:
            if args.fault != "batch-stats":
                ema.model.eval()
            with torch.no_grad():
                val = F.mse_loss(ema.model(noisy_held_out), held_out).item()
            print(f"{step + 1:4d} train {loss.item():.4f} ema val {val:.4f}")


if __name__ == "__main__":
    main()
