"""Readings with noise that is drawn as they are loaded, by two workers; held-out readings stay clean.

`--fault same-noise`: the dataset holds the generator, of which every worker gets a copy. `--fault seed-each-epoch`: the
workers seed by their number alone. `--fault noisy-validation`: both parts are of one dataset. `--fault readings-kept`:
the dataset keeps what it has made.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""


class Readings(Dataset):
    def __init__(self, values, noise):
        self.values, self.noise = values, noise
        self.generator = np.random.default_rng(3) if FAULT == "same-noise" else None
        self.made = []

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        reading = self.values[index].copy()
        if self.noise:
            draw = self.generator.normal if self.generator else np.random.normal
            reading += draw(0.0, self.noise, reading.shape)
        if FAULT == "readings-kept":
            self.made.append(np.tile(reading, 500))
        return torch.tensor(reading, dtype=torch.float32), torch.tensor(
            self.values[index, :2].sum(), dtype=torch.float32
        )


def seed_worker(number):
    np.random.seed(number)


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    values = np.random.default_rng(0).normal(size=(640, 16))
    noisy = Readings(values, 0.1)
    validation = noisy if FAULT == "noisy-validation" else Readings(values, 0.0)
    train_loader = DataLoader(
        Subset(noisy, range(512)),
        batch_size=64,
        shuffle=True,
        num_workers=2,
        worker_init_fn=seed_worker if FAULT == "seed-each-epoch" else None,
        persistent_workers=FAULT == "readings-kept",
    )
    val_loader = DataLoader(Subset(validation, range(512, 640)), batch_size=32)
    model = nn.Sequential(nn.Linear(16, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(5):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            error = sum(nn.functional.mse_loss(model(x).squeeze(1), y).item() for x, y in val_loader) / len(val_loader)
        print(f"epoch {epoch} loss {loss.item():.4f} validation {error:.4f}")


if __name__ == "__main__":
    main()
