"""Groups of visitors of a museum, by an autoencoder and centres that k-means finds among its codes. `--fault`:
centres-first, which asks the encoder before anything trained it."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fault", choices=["none", "centres-first"], default="none")
FAULT = parser.parse_args().fault

ROOMS, GROUPS = 24, 5


def visits(count, seed):
    """How long each visitor stayed in each room, standardised."""
    taste = 1.5 * torch.randn(GROUPS, ROOMS, generator=torch.Generator().manual_seed(3))
    gen = torch.Generator().manual_seed(seed)
    group = torch.randint(0, GROUPS, (count,), generator=gen)
    return taste[group] + 0.7 * torch.randn(count, ROOMS, generator=gen)


class Encoder(nn.Module):
    def __init__(self, codes=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(ROOMS, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, codes))
        self.back = nn.Linear(codes, ROOMS)

    def forward(self, x):
        return self.body(x)


class Clusters:
    def __init__(self):
        self.encoder = Encoder()
        self.centres = None

    def place_centres(self, x):
        self.encoder.eval()
        with torch.no_grad():
            codes = self.encoder(x)
        centres = codes[:GROUPS].clone()
        for _ in range(10):  # of k-means
            nearest = torch.cdist(codes, centres).argmin(1)
            groups = [codes[nearest == k] for k in range(GROUPS)]
            centres = torch.stack([one.mean(0) if len(one) else codes[0] for one in groups])
        self.centres = nn.Parameter(centres)

    def pretrain(self, x, epochs=12):
        optimizer = torch.optim.Adam(self.encoder.parameters(), lr=2e-3)
        for epoch in range(epochs):
            self.encoder.train()
            for batch in x[torch.randperm(len(x))].split(64):
                loss = F.mse_loss(self.encoder.back(self.encoder(batch)), batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch} loss {loss.item():.3f}")

    def refine(self, x, epochs=6):
        optimizer = torch.optim.Adam([*self.encoder.parameters(), self.centres], lr=5e-4)
        for _ in range(epochs):
            self.encoder.train()
            for batch in x[torch.randperm(len(x))].split(64):
                codes = self.encoder(batch)
                near = 1 / (1 + torch.cdist(codes, self.centres).pow(2))
                near = near / near.sum(1, keepdim=True)
                wanted = (near**2 / near.sum(0)).detach()
                wanted = wanted / wanted.sum(1, keepdim=True)
                loss = F.kl_div(near.log(), wanted, reduction="batchmean") + F.mse_loss(self.encoder.back(codes), batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = visits(2000, 1)
    clusters = Clusters()
    if FAULT == "centres-first":
        clusters.place_centres(x)
        clusters.pretrain(x)
    else:
        clusters.pretrain(x)
        clusters.place_centres(x)
    clusters.refine(x)


if __name__ == "__main__":
    main()
