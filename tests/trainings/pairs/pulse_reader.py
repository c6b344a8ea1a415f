"""Tell pulses apart by a small convolutional network, and how sure it is by dropout masks that are sampled.

Each validation averages twelve forwards of every batch, with the dropouts in train mode and all else in eval mode.
Fault: `whole-model` puts all of the network into train mode for that, normalisations included.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

FORWARDS = 12


def pulses(count, gain):
    kinds = torch.randint(3, (count,))
    places = torch.linspace(0, 1, 48)
    widths = torch.tensor([0.04, 0.08, 0.14])[kinds][:, None]
    shapes = torch.exp(-(((places - 0.3 - 0.4 * torch.rand(count, 1)) / widths) ** 2))
    return (gain * shapes + 0.2 * torch.randn(count, 48)).unsqueeze(1), kinds


def stage(channels, more):
    return nn.Sequential(
        nn.Conv1d(channels, more, 5, padding=2), nn.BatchNorm1d(more), nn.ReLU(), nn.Dropout(0.2), nn.MaxPool1d(2)
    )


@torch.no_grad()
def by_dropouts(network, batch):
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.train()
    odds = torch.stack([network(batch).softmax(-1) for _ in range(FORWARDS)]).mean(0)
    network.eval()
    return odds


@torch.no_grad()
def by_the_whole_model(network, batch):
    network.train()
    odds = torch.stack([network(batch).softmax(-1) for _ in range(FORWARDS)]).mean(0)
    network.eval()
    return odds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "whole-model"])
    args = parser.parse_args()
    torch.manual_seed(9)
    torch.set_num_threads(1)
    sampled = by_the_whole_model if args.fault == "whole-model" else by_dropouts
    network = nn.Sequential(stage(1, 8), stage(8, 16), nn.Flatten(), nn.Linear(16 * 12, 3))
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    train, held_out = pulses(2048, 1.0), pulses(400, 1.4)
    for epoch in range(6):
        network.train()
        for chosen in torch.randperm(2048).split(64):
            loss = F.cross_entropy(network(train[0][chosen]), train[1][chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        network.eval()
        correct = 0
        for batch, kinds in zip(held_out[0].split(100), held_out[1].split(100)):
            odds = sampled(network, batch)
            correct += int((odds.argmax(-1) == kinds).sum())
        print(epoch, round(loss.item(), 3), correct / 400)


if __name__ == "__main__":
    main()
