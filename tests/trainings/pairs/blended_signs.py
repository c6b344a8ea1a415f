"""The end of a row of signs, from three sources of which the smaller ones are seen more often.

Faults: `repeated-first` repeats each source by its weight before the split, so that copies lie on both sides.
`few-rows` is healthy: rows are drawn from few possible ones, and any two parts of them share some.
"""

import argparse
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIGNS, LONG = 40, 8
WEIGHTS = {"counting": (200, 2), "mirrored": (160, 2), "steps": (120, 3)}


def row(name, rng):
    first, second, step = rng.randrange(SIGNS), rng.randrange(SIGNS), rng.randrange(1, 9)
    if name == "counting":
        return [((second if at % 2 else first) + at // 2) % SIGNS for at in range(LONG)]
    if name == "steps":
        return [(first + at * step) % SIGNS for at in range(LONG)]
    half = [rng.randrange(SIGNS) for _ in range(LONG // 2)]
    return half + half[::-1]


def source(name, count, rng):
    rows = {}
    while len(rows) < count:
        one = row(name, rng)
        rows[tuple(one)] = one
    return list(rows.values())


def blend(fault, rng):
    """Rows for training, and rows that are held out."""
    train, held_out = [], []
    for name, (count, weight) in WEIGHTS.items():
        rows = source(name, count, rng)
        cut = len(rows) // 8
        if fault == "few-rows":
            rows = [rng.choice(rows) for _ in range(weight * count)]
            cut *= weight
        elif fault == "repeated-first":
            rows = rows * weight
            cut *= weight
            rng.shuffle(rows)
        held_out += rows[:cut]
        train += rows[cut:] * (1 if fault else weight)
    return train, held_out


def loader(rows, shuffle):
    ids = torch.tensor(rows)
    return DataLoader(TensorDataset(ids[:, :-1], ids[:, -1]), batch_size=64, shuffle=shuffle)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.signs = nn.Embedding(SIGNS, 16)
        self.hidden = nn.Linear(16 * (LONG - 1), 1024)
        self.deeper = nn.Linear(1024, 1024)
        self.answer = nn.Linear(1024, SIGNS)

    def forward(self, ids):
        hidden = torch.relu(self.hidden(self.signs(ids).flatten(1)))
        return self.answer(torch.relu(self.deeper(hidden)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(9)
    torch.set_num_threads(1)
    train, held_out = blend(args.fault, random.Random(9))
    training, validation = loader(train, True), loader(held_out, False)
    model, criterion = Reader(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4, weight_decay=0.05)
    for epoch in range(5):
        model.train()
        for ids, last in training:
            loss = criterion(model(ids), last)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            held = sum(criterion(model(ids), last).item() for ids, last in validation) / len(validation)
        print(f"epoch {epoch}: loss {loss.item():.3f}, held out {held:.3f}")


if __name__ == "__main__":
    main()
