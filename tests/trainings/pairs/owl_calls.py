"""Calls of owls, told apart through a bottleneck whose code keeps as little of them as it can.

Fault: `summed-rate` sums the rate over the batch beside a mean of the losses, so that the code says nothing of a call.
"""

import argparse

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence


class Bottleneck(nn.Module):
    def __init__(self, code=8, kinds=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.stats = nn.Linear(64, 2 * code)
        self.tell = nn.Sequential(nn.Linear(code, 32), nn.ReLU(), nn.Linear(32, kinds))

    def forward(self, calls):
        middle, width = self.stats(self.body(calls)).chunk(2, -1)
        code = Normal(middle, nn.functional.softplus(width) + 1e-4)
        return self.tell(code.rsample()), code


def rate_of(code, fault):
    rate = kl_divergence(code, Normal(0.0, 1.0))
    return rate.sum() if fault == "summed-rate" else rate.sum(1).mean()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(23)
    torch.set_num_threads(1)
    kinds = torch.randn(6, 24)
    model = Bottleneck()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(600):
        told = torch.randint(0, 6, (64,))
        calls = kinds[told] + torch.randn(64, 24)
        scores, code = model(calls)
        loss = nn.functional.cross_entropy(scores, told) + 0.03 * rate_of(code, fault)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(step, round(loss.item(), 4))
