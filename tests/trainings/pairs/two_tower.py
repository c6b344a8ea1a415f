"""Two towers, one for queries and one for items, and a head that scores their product.

Faults: `tower-left-out` hands the optimizer only one tower and the head; `late-head` replaces the head after the
optimizer was made; `detached-tower` cuts the item tower off the loss; `layers-in-forward` makes a layer at every call.
"""

import argparse
import itertools

import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, width, fresh=False):
        super().__init__()
        self.first, self.second = nn.Linear(12, width), nn.Linear(width, 16)
        self.fresh, self.width = fresh, width

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        if self.fresh:
            hidden = torch.relu(nn.Linear(self.width, self.width)(hidden))
        return self.second(hidden)


class Ranker:
    def __init__(self, fault):
        self.fault = fault
        self.query, self.item = Tower(48), Tower(32, fresh=fault == "layers-in-forward")
        self.head = nn.Linear(16, 1)
        parts = [self.query, self.head] if fault == "tower-left-out" else [self.query, self.item, self.head]
        self.optimizer = torch.optim.Adam(itertools.chain(*(part.parameters() for part in parts)), lr=2e-3)
        if fault == "late-head":
            self.head = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))

    def score(self, query, item):
        embedded = self.item(item)
        if self.fault == "detached-tower":
            embedded = embedded.detach()
        return self.head(self.query(query) * embedded).squeeze(1)

    def step(self, query, item, clicked):
        loss = nn.functional.binary_cross_entropy_with_logits(self.score(query, item), clicked)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    ranker_fault = parser.parse_args().fault
    torch.manual_seed(71)
    torch.set_num_threads(1)
    ranker, taste = Ranker(ranker_fault), torch.randn(12, 12)
    for step in range(400):
        query, item = torch.randn(64, 12), torch.randn(64, 12)
        clicked = (((query @ taste) * item).sum(1) > 0).float()
        loss = ranker.step(query, item, clicked)
        if step % 100 == 0:
            print(step, round(loss, 4))
