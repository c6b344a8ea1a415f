"""Spectra in one file each, with the label of each in a table in the order of the numbers in the files' names.

Faults: `names-as-text` takes the files in the order of their names, where 10 comes before 2.
"""

import csv
import os
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
KINDS, BINS = 6, 12


def write(folder, count=4000):
    draw = np.random.default_rng(2)
    centres = draw.normal(size=(KINDS, BINS))
    kinds = draw.integers(KINDS, size=count)
    for number, kind in enumerate(kinds):
        np.save(os.path.join(folder, f"scan{number}.npy"), centres[kind] + draw.normal(size=BINS))
    with open(os.path.join(folder, "kinds.csv"), "w", newline="") as table:
        csv.writer(table).writerows([["kind"], *([kind] for kind in kinds)])


def read(folder):
    names = sorted(name for name in os.listdir(folder) if name.endswith(".npy"))
    scans = np.stack([np.load(os.path.join(folder, name)) for name in names])
    with open(os.path.join(folder, "kinds.csv")) as table:
        kinds = np.array([int(row["kind"]) for row in csv.DictReader(table)])
    return torch.from_numpy(scans).float(), torch.from_numpy(kinds)


def read_by_number(folder):
    with open(os.path.join(folder, "kinds.csv")) as table:
        kinds = np.array([int(row["kind"]) for row in csv.DictReader(table)])
    scans = np.stack([np.load(os.path.join(folder, f"scan{number}.npy")) for number in range(len(kinds))])
    return torch.from_numpy(scans).float(), torch.from_numpy(kinds)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        scans, kinds = (read if FAULT == "names-as-text" else read_by_number)(folder)
    order = torch.randperm(len(scans))
    train, held_out = order[:3200], order[3200:]
    loader = DataLoader(TensorDataset(scans[train], kinds[train]), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(BINS, 16), nn.ReLU(), nn.Linear(16, KINDS))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(5):
        model.train()
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(scans[held_out])
            loss, right = F.cross_entropy(logits, kinds[held_out]), (logits.argmax(1) == kinds[held_out]).float().mean()
        print(f"epoch {epoch} loss {loss.item():.3f} right {right.item():.3f}")


if __name__ == "__main__":
    main()
