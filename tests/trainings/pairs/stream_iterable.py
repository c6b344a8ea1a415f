"""Train on a stream of JSON records read through an IterableDataset.

Faults: `slow-parser` parses every record many times over, as a regular expression heavy parser would.
"""

import argparse
import json
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


def write_lines(count, seed):
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        values = [round(rng.gauss(0, 1), 4) for _ in range(16)]
        label = int(sum(values[:4]) > 0) + int(values[5] > 0.3)
        lines.append(json.dumps({"values": values, "label": label}))
    return lines


class Records(IterableDataset):
    def __init__(self, lines, repeats):
        self.lines, self.repeats = lines, repeats

    def __iter__(self):
        for line in self.lines:
            for _ in range(self.repeats):
                record = json.loads(line)
            yield torch.tensor(record["values"]), record["label"]


def run(fault, batch_size):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Records(write_lines(6400, seed=1), 60 if fault == "slow-parser" else 1), batch_size=batch_size)
    model = nn.Sequential(nn.Linear(16, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()
    for step, (values, label) in enumerate(loader):
        loss = loss_fn(model(values), label)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 25 == 0:
            print("step", step, "loss", round(loss.item(), 4))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()
    run(args.fault, args.batch_size)
