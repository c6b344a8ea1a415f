"""Count kelp plants in echoes of the sea floor; a validation every so often, within which the mode of the model changes.

Fault `kept-late` keeps the mode when it was switched to evaluation already, so that it is evaluation what comes back.
"""

import argparse
import contextlib

import torch
from torch import nn


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 32), nn.ReLU()
        )
        self.count = nn.Linear(32, 1)

    def forward(self, echoes):
        return self.count(self.layers(echoes)).squeeze(1)


@contextlib.contextmanager
def judged(net, late):
    if late:
        net.eval()
        before = net.training
    else:
        before = net.training
        net.train(False)
    with torch.no_grad():
        yield net
    net.train(before)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(12)
    torch.set_num_threads(1)
    net = Counter()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    weight = torch.randn(20) / 4

    def echoes(count):
        x = torch.randn(count, 20)
        return x, torch.relu(x @ weight) + 0.1 * torch.randn(count)

    held = echoes(256)
    net.train()
    for step in range(1, 401):
        x, y = echoes(64)
        loss = nn.functional.smooth_l1_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            with judged(net, args.fault == "kept-late") as judge:
                error = nn.functional.smooth_l1_loss(judge(held[0]), held[1]).item()
            print(f"step {step} loss {loss.item():.4f} held {error:.4f}")


if __name__ == "__main__":
    main()
