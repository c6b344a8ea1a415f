"""Predict a price from a table; a Dataset that makes its features row by row, loaded in the main process.

Faults: `slow-features` computes the features with a Python loop for every row; `remote-rows` waits for every row as
if it came over a network.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Table(Dataset):
    def __init__(self, rows, fault):
        self.numeric = torch.randn(rows, 20)
        self.price = self.numeric[:, :3].sum(1) + self.numeric[:, 3] * self.numeric[:, 4]
        self.fault = fault

    def __len__(self):
        return len(self.price)

    def __getitem__(self, index):
        row = self.numeric[index]
        if self.fault == "slow-features":
            values = row.tolist()
            total = 0.0
            for _ in range(30):
                for a in values:
                    for b in values:
                        total += a * b
            row = row + 0.0 * total
        if self.fault == "remote-rows":
            time.sleep(0.0008)
        return row, self.price[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    loader = DataLoader(Table(1600, args.fault), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(20, 512), nn.SiLU(), nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, 1))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-4)
    for epoch in range(args.epochs):
        total = 0.0
        for features, price in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(features).squeeze(-1), price)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} mse {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
