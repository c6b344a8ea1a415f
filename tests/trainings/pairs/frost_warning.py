"""Frost by dawn from twenty readings, without a loader: the held-out evenings are two tensors, and an accuracy is counted.

Faults: `forgotten` validates without eval() and no_grad(); `forgotten-whole` does so and trains on all rows at once;
`forgotten-slices` validates in slices of the training batch's size. Healthy look-alikes: `labels-itself` has the model
label the other evenings once a round, as they are trained on, in train mode; `varied` trains on batches of any size.
`left` breaks out of the loop over the epochs, in its first; healthy beside it is `limited`, which counts its steps.
"""

import argparse
import contextlib

import torch
from torch import nn


@contextlib.contextmanager
def at_rest(model):
    model.eval()
    with torch.no_grad():
        yield
    model.train()


def main():
    parser = argparse.ArgumentParser()
    faults = ["", "forgotten", "forgotten-whole", "forgotten-slices", "labels-itself", "varied", "left", "limited"]
    parser.add_argument("--fault", default="", choices=faults)
    args = parser.parse_args()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    readings = torch.randn(1600, 20)
    frost = (readings[:, 0] * readings[:, 1] + 0.6 * readings[:, 2] > 0).long()
    evenings, dawns, held_evenings, held_dawns = readings[:1000], frost[:1000], readings[1000:1200], frost[1000:1200]
    others, guessed = readings[1200:], None
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    epochs, size = (200, 1000) if args.fault == "forgotten-whole" else (12, 50)
    steps = 0
    rest = contextlib.nullcontext if args.fault.startswith("forgotten") else lambda: at_rest(model)
    for epoch in range(epochs):
        order = torch.randperm(1000)
        for begin in range(0, len(evenings), size):
            rows = order[begin : begin + size]
            if args.fault == "varied":
                rows = rows[: int(torch.randint(20, 50, ()))]
            optimizer.zero_grad()
            loss = criterion(model(evenings[rows]), dawns[rows])
            if guessed is not None:
                some = torch.randint(0, 400, (20,))
                loss = loss + 0.1 * criterion(model(others[some]), guessed[some])
            loss.backward()
            optimizer.step()
            steps += 1
            if args.fault == "limited" and steps == 130:
                return
        if args.fault == "labels-itself" and epoch > 3:
            guessed = model(others).argmax(1)
        with rest():
            if args.fault == "forgotten-slices":
                parts = [model(held_evenings[begin : begin + 50]) for begin in range(0, 200, 50)]
                answers = torch.cat(parts).argmax(1)
            else:
                answers = model(held_evenings).argmax(1)
            right = (answers == held_dawns).float().mean().item()
        if epoch % 20 == 0:
            print(epoch, right)
        if args.fault == "left":
            break


if __name__ == "__main__":
    main()
