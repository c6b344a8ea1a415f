"""A variational autoencoder of correlated sensors under a one-cycle schedule.

Faults: `heavy-prior` weighs the prior five hundredfold, so that the decoder answers the mean; `left-early` still has
the break of a debugging session.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Sequential(nn.Linear(16, 48), nn.ReLU())
        self.mean, self.spread = nn.Linear(48, 3), nn.Linear(48, 3)
        self.write = nn.Sequential(nn.Linear(3, 48), nn.ReLU(), nn.Linear(48, 16))

    def forward(self, x):
        h = self.read(x)
        mean, spread = self.mean(h), self.spread(h)
        return self.write(mean + torch.randn_like(mean) * (0.5 * spread).exp()), mean, spread


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "heavy-prior", "left-early"])
    args = parser.parse_args()
    torch.manual_seed(9)
    torch.set_num_threads(1)
    data = torch.randn(3000, 3) @ torch.randn(3, 16) + 0.1 * torch.randn(3000, 16)
    loader = DataLoader(TensorDataset(data), batch_size=60, shuffle=True)
    model, epochs = Coder(), 10
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=epochs * len(loader))
    weight = 500.0 if args.fault == "heavy-prior" else 0.05
    for epoch in range(epochs):
        for (x,) in loader:
            output, mean, spread = model(x)
            prior = -0.5 * (1 + spread - mean**2 - spread.exp()).sum(1).mean()
            loss = F.mse_loss(output, x) + weight * prior
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        print(epoch, loss.item())
        if args.fault == "left-early" and epoch >= 2:
            break


if __name__ == "__main__":
    main()
