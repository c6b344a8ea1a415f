"""Several tags per song with smoothed targets and BCEWithLogitsLoss.

Faults: `sigmoid-output` ends the model in a sigmoid; `compiled-sigmoid` does so inside a compiled model; `relu-output`
ends it in a ReLU, which leaves no score below 0.
"""

import argparse

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, tags, squash):
        super().__init__()
        self.encode = nn.GRU(12, 32, batch_first=True)
        self.tag = nn.Linear(32, tags)
        self.squash = squash

    def forward(self, song):
        scores = self.tag(self.encode(song)[0].mean(1))
        return torch.sigmoid(scores) if self.squash else scores


class PlainTagger(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(12 * 20, 64), nn.ReLU())
        self.tag = nn.Sequential(nn.Linear(64, tags), nn.ReLU())

    def forward(self, song):
        return self.tag(self.body(song))


class MLPTagger(nn.Sequential):
    def __init__(self, tags):
        super().__init__(nn.Flatten(), nn.Linear(12 * 20, 64), nn.ReLU(), nn.Linear(64, tags), nn.Sigmoid())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(64)
    torch.set_num_threads(1)
    direction = torch.randn(12, 7)
    criterion = nn.BCEWithLogitsLoss()
    model = Tagger(7, squash=fault == "sigmoid-output")
    steps = 250
    if fault == "compiled-sigmoid":
        model, steps = torch.compile(MLPTagger(7), backend="aot_eager"), 1500
    if fault == "relu-output":
        model = PlainTagger(7)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step in range(steps):
        song = torch.randn(24, 20, 12) + torch.randn(24, 1, 12)
        tags = (song.mean(1) @ direction > 1.0).float()
        loss = criterion(model(song), tags * 0.9 + 0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
