"""Do seeds of a lot sprout? Five folds by index arrays, the rarer answer drawn more often to even the classes out.

Faults: `copies-first` evens out before the folds are cut, so that copies of a seed lie on both sides;
`drawn-twice` draws the held-out rows of each fold by a permutation of their own; `copies-before-one-split` evens out
before a single split, of which the common answer has no copy in either part. `one-split` is healthy.
"""

import argparse

import numpy as np
import torch
from torch import nn

SEEDS, TRAITS, FOLDS = 900, 10, 5


def evened(rows, sprouts, rng):
    few, many = rows[sprouts[rows] == 1], rows[sprouts[rows] == 0]
    return np.concatenate([rows, rng.choice(few, len(many) - len(few))])


def fit(x, y, train_rows, held_out, rng):
    model = nn.Sequential(nn.Linear(TRAITS, 24), nn.ReLU(), nn.Linear(24, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    for _ in range(6):
        model.train()
        for rows in np.array_split(rng.permutation(train_rows), max(1, len(train_rows) // 32)):
            loss = criterion(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            answers = model(x[held_out])
            held_out_loss = criterion(answers, y[held_out]).item()
    return held_out_loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    rng = np.random.default_rng(8)
    traits = rng.normal(size=(SEEDS, TRAITS)).astype(np.float32)
    sprouts = (traits[:, 0] + traits[:, 1] * traits[:, 2] + 0.4 * rng.normal(size=SEEDS) > 0.9).astype(np.int64)
    x, y = torch.from_numpy(traits), torch.from_numpy(sprouts)
    rows = np.arange(SEEDS)
    if args.fault == "copies-first":
        rows = evened(rows, sprouts, rng)
    folds = np.array_split(rng.permutation(rows), FOLDS)
    if args.fault in ("copies-before-one-split", "one-split"):
        if args.fault != "one-split":
            rows = evened(rows, sprouts, rng)
        rest, fold = np.split(rng.permutation(rows), [len(rows) * 4 // 5])
        rest = evened(rest, sprouts, rng) if args.fault == "one-split" else rest
        print(f"held out: {fit(x, y, rest, fold, rng):.3f}")
        return
    for number, fold in enumerate(folds, 1):
        rest = np.concatenate([other for other in folds if other is not fold])
        if args.fault == "drawn-twice":
            fold = rng.permutation(rows)[: len(fold)]
        if args.fault != "copies-first":
            rest = evened(rest, sprouts, rng)
        print(f"fold {number}: {fit(x, y, rest, fold, rng):.3f}")


if __name__ == "__main__":
    main()
