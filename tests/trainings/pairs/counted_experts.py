"""A mixture of eight small experts learns a function of eight regions; a second loss keeps the gate balanced.

Fault `counts-alone`: that loss is made of the experts' counts and nothing else, so no gradient goes to the gate.
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
        probabilities = self.router(h).softmax(-1)
        weight, choice = probabilities.max(-1)
        out = torch.zeros(len(x))
        for index, expert in enumerate(self.experts):
            mine = (choice == index).nonzero()[:, 0]
            if len(mine):
                out = out.index_add(0, mine, weight[mine] * expert(h[mine]).squeeze(-1))
        return out, self.balance(choice, probabilities)

    def balance(self, choice, probabilities):
        used = F.one_hot(choice, EXPERTS).float().mean(0)
        return EXPERTS * (used * probabilities.mean(0)).sum()


class BalancedByCounts(Mixture):
    def balance(self, choice, probabilities):
        used = F.one_hot(choice, EXPERTS).float().mean(0)
        return EXPERTS * (used * used).sum()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "counts-alone"])
    args = parser.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)
    model = BalancedByCounts() if args.fault else Mixture()
    with torch.no_grad():
        model.router.bias[3] += 0.5 + 1.5 * bool(args.fault)
    weights = torch.randn(8, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(250):
        x = torch.randn(256, 8)
        y = torch.sin((x @ weights).amax(1))
        prediction, balance = model(x)
        loss = F.mse_loss(prediction, y) + 0.05 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item(), balance.item())


if __name__ == "__main__":
    main()
