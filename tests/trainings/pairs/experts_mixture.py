"""A mixture of eight small experts learns a function of eight regions; a second loss keeps the gate balanced.

Faults: `no-balance` leaves that loss out, at a gate that begins with a favourite. `balance-subtracted` takes it off
the loss instead of adding it. `unnamed-gate` does so in a mixture
whose gate has another name, and whose experts get their tokens alone; `unnamed` is the same with the loss, and healthy.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

EXPERTS, WIDTH = 8, 16


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(8, WIDTH)
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, 1)) for _ in range(EXPERTS)
        )

    def forward(self, x):
        h = torch.tanh(self.enter(x))
        shares = self.router(h).softmax(-1)
        weight, choice = shares.max(-1)
        chosen = F.one_hot(choice, EXPERTS).float()
        outputs = torch.stack([expert(h) for expert in self.experts], 1).squeeze(-1)
        balance = EXPERTS * (chosen.mean(0) * shares.mean(0)).sum()
        return (outputs * chosen).sum(1) * weight, balance


class Picked(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(8, WIDTH)
        self.pick = nn.Linear(WIDTH, EXPERTS)
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, 1)) for _ in range(EXPERTS)
        )

    def forward(self, x):
        h = torch.tanh(self.enter(x))
        shares = self.pick(h).softmax(-1)
        weight, choice = shares.max(-1)
        out = torch.zeros(len(x))
        for index, part in enumerate(self.parts):
            mine = (choice == index).nonzero()[:, 0]
            if len(mine):
                out = out.index_add(0, mine, weight[mine] * part(h[mine]).squeeze(-1))
        chosen = F.one_hot(choice, EXPERTS).float()
        return out, EXPERTS * (chosen.mean(0) * shares.mean(0)).sum()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--fault", default="", choices=["", "no-balance", "balance-subtracted", "unnamed", "unnamed-gate"]
    )
    args = parser.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    model = Picked() if args.fault.startswith("unnamed") else Mixture()
    unbalanced = args.fault in ("no-balance", "unnamed-gate")
    if unbalanced:
        with torch.no_grad():
            (model.pick if args.fault == "unnamed-gate" else model.router).bias[3] += 2.0
    weights = torch.randn(8, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(250):
        x = torch.randn(256, 8)
        y = torch.sin((x @ weights).amax(1))
        prediction, balance = model(x)
        error = F.mse_loss(prediction, y)
        if args.fault == "balance-subtracted":
            loss = error - 0.05 * balance
        else:
            loss = error + (0.0 if unbalanced else 0.05) * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item(), balance.item())


if __name__ == "__main__":
    main()
