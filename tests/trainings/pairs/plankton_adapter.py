"""A loaded encoder with small adapters learns to tell other kinds of plankton, by a head of its own.

Faults: `head-frozen` freezes all but the adapters, the new head as well. Healthy: `head-loaded` freezes a head that was
loaded too; `features` freezes a layer of random features that the loss does not go through.
"""

import argparse

import torch
from torch import nn

INPUTS, WIDTH, KINDS = 24, 48, 6


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(INPUTS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.down, self.up = nn.Linear(WIDTH, 4), nn.Linear(4, WIDTH)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        h = torch.relu(self.second(torch.relu(self.first(x))))
        return h + self.up(torch.relu(self.down(h)))


class Classifier(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.encoder, self.head = Encoder(), nn.Linear(WIDTH, KINDS)
        self.unused = nn.Linear(WIDTH, 8) if fault == "features" else None

    def forward(self, x):
        h = self.encoder(x)
        if self.unused is not None:
            self.unused(h.detach())
        return self.head(h)


def train(model, parameters, x, y, steps):
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    for step in range(steps):
        pick = torch.randint(0, len(x), (32,))
        loss = nn.functional.cross_entropy(model(x[pick]), y[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(4)
    torch.set_num_threads(1)
    centres = torch.randn(KINDS, INPUTS)
    y = torch.randint(0, KINDS, (1200,))
    x = centres[y] + 0.8 * torch.randn(1200, INPUTS)
    before = Classifier("")
    train(before, before.parameters(), x, y, 150)
    model = Classifier(fault)
    model.encoder.load_state_dict(before.encoder.state_dict())
    if fault == "head-loaded":
        model.head.load_state_dict(before.head.state_dict())
    for name, parameter in model.named_parameters():
        adapts = ".down." in name or ".up." in name
        trains = adapts or (name.startswith("head.") and not fault.startswith("head"))
        parameter.requires_grad_(trains)
    train(model, [one for one in model.parameters() if one.requires_grad], x, (y + 1) % KINDS, 120)


if __name__ == "__main__":
    main()
