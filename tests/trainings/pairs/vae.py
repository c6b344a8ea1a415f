"""Variational autoencoder on small binary images.

Faults: `log-zero` takes the logarithm of the decoder's probabilities with no guard, and a sharp decoder reaches
zero; `blank-image` divides every image by its own sum, and one image of the data set is empty.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class VAE(nn.Module):
    def __init__(self, pixels=64, hidden=96, latent=6):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(pixels, hidden), nn.ReLU())
        self.mu, self.logvar = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decode = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, pixels))

    def forward(self, x):
        h = self.encode(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.decode(z), mu, logvar


def bars(n, generator):
    images = torch.zeros(n, 8, 8)
    for k in range(8):
        images[torch.rand(n, generator=generator) < 0.25, k, :] = 1.0
        images[torch.rand(n, generator=generator) < 0.25, :, k] = 1.0
    images[:, 0, 0] = 1.0
    return images.view(n, 64)


def elbo(x, logits, mu, logvar, fault):
    if fault == "log-zero":
        p = torch.sigmoid(logits * 40)
        reconstruction = -(x * torch.log(p) + (1 - x) * torch.log(1 - p)).sum(1)
    else:
        reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
    divergence = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1)
    return (reconstruction + divergence).mean()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(6)
    torch.set_num_threads(1)
    data = bars(3000, torch.Generator().manual_seed(3))
    if args.fault == "blank-image":
        data[1234] = 0.0
        data = data / data.sum(1, keepdim=True)
    loader = DataLoader(TensorDataset(data), batch_size=64, shuffle=True)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        total = 0.0
        for (x,) in loader:
            logits, mu, logvar = model(x)
            loss = elbo(x, logits, mu, logvar, args.fault)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
        print(f"====> Epoch: {epoch} Average loss: {total / len(data):.4f}")
