"""Faults of wines from sixteen measurements: whether one is corked, or which of five faults it has.

Healthy: binary_cross_entropy of one sigmoid, behind a gate of another one. Faults, of which each squashes twice:
`twice-called` before binary_cross_entropy, `twice-written` in a loss that the script writes out, `soft-formula` in the
formula of the logits, `classes-called` before nll_loss, `classes-written`. Healthy look-alikes: `sharpened` scales and
moves what a sigmoid gave before the next one, `logs-of-logs` takes log_softmax of log_softmax, `classes-once` and
`written-once` squash once.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = ("classes-called", "classes-written", "logs-of-logs", "classes-once")
FAULTS = ("twice-called", "twice-written", "soft-formula", "sharpened", "written-once", *CLASSES)


class Taster(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.gate = nn.Linear(16, 16)
        self.layers = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 5 if fault in CLASSES else 1))
        self.fault = fault

    def forward(self, x):
        scores = self.layers(x * torch.sigmoid(self.gate(x)))
        if self.fault in ("", "written-once", "classes-once"):
            return scores
        if self.fault == "logs-of-logs":
            return F.log_softmax(scores, dim=1)
        return F.softmax(scores, dim=1) if self.fault in CLASSES else torch.sigmoid(scores)


def loss_of(out, corked, kind, fault):
    if fault == "classes-called":
        return F.nll_loss(torch.log(torch.softmax(out, dim=1) + 1e-8), kind)
    if fault in ("logs-of-logs", "classes-once"):
        return F.nll_loss(F.log_softmax(out, dim=1), kind)
    if fault == "classes-written":
        shares = out.softmax(dim=1)
        return -torch.log(shares[torch.arange(len(kind)), kind] + 1e-8).mean()
    if fault == "soft-formula":
        return (out.clamp(min=0) - out * corked + torch.log1p(torch.exp(-out.abs()))).mean()
    chance = torch.sigmoid(20 * (out - 0.5)) if fault == "sharpened" else torch.sigmoid(out)
    if fault in ("twice-written", "written-once"):
        return -(corked * torch.log(chance + 1e-7) + (1 - corked) * torch.log(1 - chance + 1e-7)).mean()
    return F.binary_cross_entropy(chance, corked)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    fault = parser.parse_args().fault
    torch.manual_seed(12)
    torch.set_num_threads(1)
    wines = torch.randn(1200, 16)
    corked = (wines[:, 0] + wines[:, 1] > 0.7).float()[:, None]
    kind = (wines[:, 0] * 1.5 + wines[:, 1]).clamp(-2, 2).round().long() + 2
    model = Taster(fault)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(400):
        rows = torch.randint(0, 1200, (64,))
        loss = loss_of(model(wines[rows]), corked[rows], kind[rows], fault)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
