"""Recurrent regression on sequences that a generator makes, four micro-batches a step, no loader anywhere.

Faults: `clip-every-microbatch` clips after each backward; `cleared-every-microbatch` clears before each;
`not-divided` adds up full means under SGD.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def sequences(count, size):
    for _ in range(count):
        x = torch.randn(size, 10, 6)
        yield x, x[:, :, :1].cumsum(1)[:, -1]


class Summing(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(6, 24, batch_first=True)
        self.head = nn.Linear(24, 1)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


def main():
    parser = argparse.ArgumentParser()
    faults = ["", "clip-every-microbatch", "cleared-every-microbatch", "not-divided"]
    parser.add_argument("--fault", default="", choices=faults)
    args = parser.parse_args()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    model, parts = Summing(), 4
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for number, (x, y) in enumerate(sequences(150 * parts, 16), start=1):
        if args.fault == "cleared-every-microbatch":
            optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        (loss if args.fault == "not-divided" else loss / parts).backward()
        if args.fault == "clip-every-microbatch":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if number % parts == 0:
            if args.fault != "clip-every-microbatch":
                nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            optimizer.zero_grad()
        if number % 100 == 0:
            print(number, loss.item())


if __name__ == "__main__":
    main()
