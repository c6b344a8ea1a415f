"""Gradient accumulation by the modulo idiom: four micro-batches per optimizer step, loss divided by four.

Faults: `never-cleared` forgets `zero_grad` altogether; `cleared-every-microbatch` clears before every backward;
`not-divided` does not divide the loss, under SGD, whose updates then are four times as long; `divided-twice` divides it
again in the backward; `clip-every-microbatch` clips the partly accumulated gradients.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def dataset(n=4096):
    x = torch.randn(n, 24)
    w = torch.randn(24, 12)
    y = (torch.tanh(x @ w / 5) @ torch.randn(12, 5)).argmax(1)
    return TensorDataset(x, y)


def train(args):
    loader = DataLoader(dataset(), batch_size=16, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Linear(24, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 5))
    if args.fault in ("not-divided", "divided-twice"):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    criterion = nn.CrossEntropyLoss()
    accumulate = 4
    optimizer.zero_grad()
    for epoch in range(args.epochs):
        running = 0.0
        for i, (x, y) in enumerate(loader):
            if args.fault == "cleared-every-microbatch":
                optimizer.zero_grad()
            loss = criterion(model(x), y)
            running += loss.item()
            if args.fault != "not-divided":
                loss = loss / accumulate
            if args.fault == "divided-twice":
                (loss / accumulate).backward()
            else:
                loss.backward()
            if args.fault == "clip-every-microbatch":
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            if (i + 1) % accumulate == 0:
                optimizer.step()
                if args.fault != "never-cleared":
                    optimizer.zero_grad()
        print(f"epoch {epoch}: {running / len(loader):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--fault", default="")
    torch.manual_seed(3)
    torch.set_num_threads(1)
    train(parser.parse_args())
