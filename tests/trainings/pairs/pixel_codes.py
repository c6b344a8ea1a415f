"""A variational autoencoder of blobs, and then a probe that reads the quadrant of a blob off its codes.

Fault: `mean-pixels` takes the mean of the reconstruction over the pixels, beside a divergence that is a sum over the
code. The codes then say nothing, and the probe stays at a guess: its rate is as sound as without the fault.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE = 10


def blobs(count):
    at = torch.arange(SIDE).float()
    middle = 1 + 7 * torch.rand(count, 2)
    images = torch.exp(-((at - middle[:, :1, None]).pow(2) + (at[:, None] - middle[:, 1:, None]).pow(2)) / 6)
    quadrants = (middle[:, 0] > SIDE / 2).long() * 2 + (middle[:, 1] > SIDE / 2).long()
    return images.flatten(1), quadrants


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Sequential(nn.Linear(SIDE**2, 96), nn.ReLU())
        self.mu, self.logvar = nn.Linear(96, 4), nn.Linear(96, 4)
        self.write = nn.Sequential(nn.Linear(4, 96), nn.ReLU(), nn.Linear(96, SIDE**2))

    def forward(self, x):
        h = self.read(x)
        mu, logvar = self.mu(h), self.logvar(h)
        return torch.sigmoid(self.write(mu + torch.randn_like(mu) * torch.exp(0.5 * logvar))), mu, logvar


def bound(output, x, mu, logvar, pixels):
    error = F.binary_cross_entropy(output, x)
    divergence = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    divergence = divergence / x.size(0)
    return pixels * error + divergence


def probe(codes, quadrants):
    layer = nn.Linear(codes.shape[1], 4)
    optimizer = torch.optim.Adam(layer.parameters(), lr=5e-2)
    for _ in range(150):
        optimizer.zero_grad()
        F.cross_entropy(layer(codes), quadrants).backward()
        optimizer.step()
    return (layer(codes).argmax(1) == quadrants).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "mean-pixels"])
    args = parser.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    images, quadrants = blobs(2048)
    loader = DataLoader(TensorDataset(images), batch_size=64, shuffle=True)
    model = Coder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(30):
        for (x,) in loader:
            output, mu, logvar = model(x)
            loss = bound(output, x, mu, logvar, 1 if args.fault else SIDE**2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())
    with torch.no_grad():
        codes = model.mu(model.read(images))
    print("quadrants read off the codes", probe(codes, quadrants))


if __name__ == "__main__":
    main()
