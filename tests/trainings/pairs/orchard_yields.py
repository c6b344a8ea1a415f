"""The yield of fruit trees from soil and weather, with what each step was worth kept for a report.

Faults: list-remade, sum-remade, sums-in-dictionary, meter-of-tensors, report-extended.
"""

import argparse

import torch
from torch import nn

FAULTS = ("list-remade", "sum-remade", "sums-in-dictionary", "meter-of-tensors", "report-extended")
TREES = 800


class Meter:
    def __init__(self):
        self.total = 0.0
        self.count = 0

    def update(self, value, count):
        self.total = self.total + value * count
        self.count += count

    @property
    def mean(self):
        return float(self.total) / max(self.count, 1)


class Report:
    def __init__(self):
        self.rows = []
        self.sums = {"loss": 0.0, "error": 0.0}

    def add(self, values):
        self.sums = {name: total + values[name] for name, total in self.sums.items()}

    def extend(self, predictions):
        self.rows.extend(predictions)


def make_trees():
    generator = torch.Generator().manual_seed(17)
    x = torch.randn(TREES, 12, generator=generator)
    y = (x[:, :3].sum(1, keepdim=True) + x[:, 3:4] * x[:, 4:5]).tanh()
    return x, y + 0.05 * torch.randn(TREES, 1, generator=generator)


def main(fault):
    torch.manual_seed(4)
    x, y = make_trees()
    model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses, total, meter, report = [], 0.0, Meter(), Report()
    for epoch in range(8):
        order = torch.randperm(TREES)
        for first in range(0, TREES, 20):
            rows = order[first : first + 20]
            out = model(x[rows])
            loss = ((out - y[rows]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            kept, error = loss.item(), (out - y[rows]).abs().mean().item()
            entry = loss if fault == "list-remade" else kept
            worth = loss if fault == "sum-remade" else kept
            losses = losses + [entry]
            total = total + worth
            meter.update(loss if fault == "meter-of-tensors" else kept, len(rows))
            report.add({"loss": loss if fault == "sums-in-dictionary" else kept, "error": error})
            report.extend(out if fault == "report-extended" else out.detach())
        print(f"epoch {epoch}: {float(total):.4f} {meter.mean:.4f} {len(losses)} {len(report.rows)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=FAULTS)
    main(parser.parse_args().fault)
