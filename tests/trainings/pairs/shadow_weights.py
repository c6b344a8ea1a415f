"""How far a thrown ball flies, by a small network; it is validated with an average of its weights, kept by their names.

Faults: `once-an-epoch` updates the average after each epoch instead of each step. `never-updated` forgets it.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class EMA:
    def __init__(self, model, decay):
        self.model, self.decay = model, decay
        self.shadow = {name: weight.data.clone() for name, weight in model.named_parameters()}
        self.backup = {}

    def update(self):
        for name, weight in self.model.named_parameters():
            self.shadow[name] = self.decay * self.shadow[name] + (1 - self.decay) * weight.data

    def apply_shadow(self):
        for name, weight in self.model.named_parameters():
            self.backup[name] = weight.data
            weight.data = self.shadow[name]

    def restore(self):
        for name, weight in self.model.named_parameters():
            weight.data = self.backup[name]
        self.backup = {}


def throws(count):
    given = torch.rand(count, 3)
    speed, angle, wind = 5 + 10 * given[:, 0], 0.2 + given[:, 1], given[:, 2] - 0.5
    return given, (speed**2 * torch.sin(2 * angle) / 9.81 * (1 + 0.3 * wind))[:, None] / 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "once-an-epoch", "never-updated"])
    fault = parser.parse_args().fault
    torch.manual_seed(11)
    torch.set_num_threads(1)
    x, y = throws(1600)
    held_x, held_y = throws(400)
    model = nn.Sequential(nn.Linear(3, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
    ema = EMA(model, 0.995)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(10):
        model.train()
        for pick in torch.randperm(len(x)).split(32):
            loss = F.mse_loss(model(x[pick]), y[pick])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not fault:
                ema.update()
        if fault == "once-an-epoch":
            ema.update()
        ema.apply_shadow()
        model.eval()
        with torch.no_grad():
            held = F.mse_loss(model(held_x), held_y).item()
        ema.restore()
        print(f"epoch {epoch} loss {loss.item():.4f} held out {held:.4f}")


if __name__ == "__main__":
    main()
