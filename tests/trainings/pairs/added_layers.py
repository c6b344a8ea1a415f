"""Trains a small model, freezes it, and trains small additions to it and its head under reentrant checkpointing.

What goes into the first checkpointed layer needs no gradient once the embedding is frozen, so the script asks for one.
Faults: `head-alone` does not, so that only the head gets a gradient; `no-gradient` does not, and has a frozen head: the
first backward of the second phase raises.
"""

import argparse

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Tagger(nn.Module):
    def __init__(self, asks):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(2)])
        self.added = nn.ModuleList([nn.Linear(16, 16, bias=False) for _ in range(2)])
        self.head = nn.Linear(16, 5)
        self.asks = asks

    def block(self, number, hidden):
        return self.layers[number](hidden) + self.added[number](hidden)

    def forward(self, words, saving):
        hidden = self.embedding(words)
        if saving and self.asks:
            hidden.requires_grad_()
        for number in range(2):
            if saving:
                hidden = checkpoint(self.block, number, hidden, use_reentrant=True)
            else:
                hidden = self.block(number, hidden)
        return self.head(hidden)


def train(model, steps, saving):
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    for step in range(steps):
        words = torch.randint(0, 20, (32, 6))
        loss = nn.functional.cross_entropy(model(words, saving).flatten(0, 1), (words % 5).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(step, loss.item())


def main(fault):
    model = Tagger(asks=not fault)
    train(model, 90, False)
    trained = ("added",) if fault == "no-gradient" else ("added", "head")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith(trained))
    train(model, 90, True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    torch.manual_seed(4)
    torch.set_num_threads(1)
    main(parser.parse_args().fault)
