"""A compiled network that scales large activations down, with a temperature that falls and batches of several sizes.

Faults: `item-in-forward` asks for the largest activation with `.item()` in the compiled forward; `branch-on-tensor`
decides by an `if` on a tensor; `list-in-forward` keeps a statistic of every forward in a list of the module, so that
each forward is compiled anew, until torch.compile gives up.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Gated(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.inner = nn.Linear(16, 64)
        self.outer = nn.Linear(64, 6)
        self.fault = fault
        self.temperature = 1.0  # a Python number: compiled once as it is, and once more for all others
        self.means = []

    def forward(self, x):
        h = F.gelu(self.inner(x))
        if self.fault == "item-in-forward":
            if h.abs().max().item() > 20:
                h = h / 2
        elif self.fault == "branch-on-tensor":
            if h.abs().max() > 20:
                h = h / 2
        else:
            h = torch.where(h.abs().max() > 20, h / 2, h)
        if self.fault == "list-in-forward":
            self.means.append(h.detach().mean())
            h = h - self.means[0] if len(self.means) < 3 else h
        return self.outer(h) / self.temperature


def train(fault):
    net = Gated(fault)
    compiled = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    plan = torch.randn(16, 6)
    for step in range(300):
        x = torch.randn(32 if step % 10 else 20, 16)
        y = (x @ plan).argmax(1)
        net.temperature = 1.0 + 1.0 / (1 + step)
        loss = F.cross_entropy(compiled(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    torch.manual_seed(83)
    torch.set_num_threads(1)
    train(parser.parse_args().fault)
