"""Guess the load of freight trains from axle signals of different lengths, in batches of similar length.

The sampler of batches draws their order from a seed and the epoch. Faults: `untold` tells the epoch to the sampler of
the loader, which is another one. (`in-order` is no fault: the same sampler, asked to keep the order of the lengths.)
"""

import argparse

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader


class Bundles:
    def __init__(self, lengths, size, shuffle):
        self.lengths, self.size, self.shuffle, self.epoch = lengths, size, shuffle, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.lengths) // self.size

    def __iter__(self):
        generator = torch.Generator().manual_seed(17 + self.epoch)
        noise = 8 * torch.rand(len(self.lengths), generator=generator) * self.shuffle
        order = torch.argsort(self.lengths + noise)[: len(self) * self.size].reshape(-1, self.size)
        chosen = torch.randperm(len(order), generator=generator) if self.shuffle else torch.arange(len(order))
        yield from order[chosen].tolist()


def trains(count):
    found = []
    for _ in range(count):
        load, axles = torch.rand(()), int(torch.randint(12, 30, ()))
        found.append((0.5 + load + 0.3 * torch.randn(axles, 2), load))
    return found


def together(rows):
    return pad_sequence([signal for signal, _ in rows], batch_first=True), torch.stack([load for _, load in rows])


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.axle = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.load = nn.Linear(32, 1)

    def forward(self, signals):
        return self.load(self.axle(signals).mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    data, held = trains(640), trains(160)
    lengths = torch.tensor([len(signal) for signal, _ in data])
    bundles = Bundles(lengths, 16, shuffle=args.fault != "in-order")
    loader = DataLoader(data, batch_sampler=bundles, collate_fn=together)
    held_loader = DataLoader(held, 80, collate_fn=together)
    model, measure = Scale(), nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(8):
        model.train()
        told = loader.sampler if args.fault == "untold" else loader.batch_sampler
        if hasattr(told, "set_epoch"):
            told.set_epoch(epoch)
        for signals, load in loader:
            loss = measure(model(signals), load)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            error = sum(measure(model(signals), load).item() for signals, load in held_loader) / len(held_loader)
        print(f"epoch {epoch} error {error:.4f}")


if __name__ == "__main__":
    main()
