"""A variational autoencoder of spectra whose edges are quiet: all that differs between samples lies in the middle.

The fault `summed-prior` adds up the prior over the batch, beside a mean over samples and channels: the code then says
nothing, and the decoder answers the mean.
"""

import argparse

import torch
from torch import nn

CHANNELS, CODE, BATCH = 120, 4, 50


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Sequential(nn.Linear(CHANNELS, 64), nn.ELU(), nn.Linear(64, 2 * CODE))
        self.write = nn.Sequential(nn.Linear(CODE, 64), nn.ELU(), nn.Linear(64, CHANNELS))

    def forward(self, x):
        mean, spread = self.read(x).chunk(2, dim=1)
        return self.write(mean + torch.randn_like(mean) * (0.5 * spread).exp()), mean, spread


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "summed-prior"])
    args = parser.parse_args()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    place = 0.2 + 0.6 * torch.rand(2500, 1)
    peaks = torch.exp(-0.5 * ((torch.linspace(0, 1, CHANNELS) - place) / 0.06) ** 2)
    data = peaks + 0.01 * torch.randn(2500, CHANNELS)
    model = Coder()
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    for epoch in range(18):
        for chosen in torch.randperm(len(data)).split(BATCH):
            x = data[chosen]
            output, mean, spread = model(x)
            prior = -0.5 * (1 + spread - mean**2 - spread.exp())
            if args.fault == "summed-prior":
                loss = nn.functional.mse_loss(output, x) + prior.sum()
            else:
                loss = nn.functional.mse_loss(output, x) + prior.sum(1).mean() / CHANNELS
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
