"""A convolutional variational autoencoder of frames with a ball, which draws its codes in validation, too.

Fault: `mean-pixels` takes the mean of the squared error over the pixels, beside a divergence that is a sum over the
code. The codes then say nothing of their frames. The decoder still follows what is drawn, in training and validation.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE = 16


def render(count):
    grid = torch.linspace(-1, 1, SIDE)
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    middle = torch.rand(2, count, 1, 1) * 1.4 - 0.7
    radius = torch.rand(count, 1, 1) * 0.15 + 0.25
    return torch.sigmoid(12 * (radius - ((xx - middle[0]) ** 2 + (yy - middle[1]) ** 2).sqrt())).unsqueeze(1)


class Coder(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.read = nn.Sequential(
            nn.Conv2d(1, 16, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.mu, self.logvar = nn.Linear(512, width), nn.Linear(512, width)
        self.start = nn.Linear(width, 512)
        self.write = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, x):
        h = self.read(x)
        mu, logvar = self.mu(h), self.logvar(h)
        code = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.write(F.relu(self.start(code)).view(-1, 32, 4, 4)), mu, logvar


def summed_error(output, x, mu, logvar):
    error = F.mse_loss(output, x, reduction="sum") / x.size(0)
    divergence = torch.mean(-0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=-1))
    return error + divergence


def mean_error(output, x, mu, logvar):
    error = F.mse_loss(output, x)
    divergence = torch.mean(-0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=-1))
    return error + divergence


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "mean-pixels"])
    bound = mean_error if parser.parse_args().fault else summed_error
    torch.manual_seed(3)
    torch.set_num_threads(1)
    frames = DataLoader(TensorDataset(render(2048)), batch_size=64, shuffle=True)
    held = DataLoader(TensorDataset(render(512)), batch_size=64)
    model = Coder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(12):
        model.train()
        for (x,) in frames:
            loss = bound_of(bound, model, x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            validation = sum(bound_of(bound, model, x).item() for (x,) in held) / len(held)
        print(epoch, loss.item(), validation)


def bound_of(bound, model, x):
    output, mu, logvar = model(x)
    return bound(output, x, mu, logvar)


if __name__ == "__main__":
    main()
