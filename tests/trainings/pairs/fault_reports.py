"""Which part of a lift does a report speak of? Reports are kept part by part; a sampler of its own draws their order.

Faults: `order-thrown-away` draws a new order and keeps the old one, so that batches hold one part each, part after part;
`sorted-each-epoch` sorts what it has drawn. `parts-in-turn` is healthy: batches hold all parts, in a fixed pattern.
"""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

PARTS, EACH, WORDS = 5, 200, 24


class Drawn(Sampler):
    def __init__(self, count, fault):
        self.count, self.fault, self.epoch = count, fault, 0

    def __len__(self):
        return self.count

    def __iter__(self):
        rng = np.random.default_rng([5, self.epoch])
        order = np.arange(self.count)
        if self.fault == "order-thrown-away":
            rng.permutation(order)
        elif self.fault == "sorted-each-epoch":
            order = np.sort(rng.permutation(order))
        elif self.fault == "parts-in-turn":
            order = order.reshape(PARTS, -1).T.reshape(-1)
        else:
            order = rng.permutation(order)
        return iter(order.tolist())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    centres = torch.randn(PARTS, WORDS)
    part = torch.arange(PARTS).repeat_interleave(EACH)
    reports = centres[part] + 1.2 * torch.randn(PARTS * EACH, WORDS)
    held_out = torch.zeros(len(part), dtype=torch.bool)
    held_out[::10] = True
    train = TensorDataset(reports[~held_out], part[~held_out])
    sampler = Drawn(len(train), args.fault)
    loader = DataLoader(train, batch_size=20, sampler=sampler)
    model = nn.Sequential(nn.Linear(WORDS, 48), nn.ReLU(), nn.Linear(48, PARTS))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        sampler.epoch = epoch
        model.train()
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(reports[held_out]).argmax(1) == part[held_out]).float().mean().item()
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {right:.3f}")


if __name__ == "__main__":
    main()
