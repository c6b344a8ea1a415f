"""Fine-tune a trunk at a tenth of the rate of its new head, with one cycle of warm-up and decay for both.

Faults: `one-peak` gives the schedule a single peak, which is then the peak of both groups. `first-rate` is a schedule of
the script's own that makes all rates of the first group's; `own-schedule`, with a rate for each, is no fault. Before
these two the trunk is trained on another task.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class WarmThenFall(torch.optim.lr_scheduler.LRScheduler):
    def __init__(self, optimizer, steps, alike):
        self.steps, self.alike = steps, alike
        super().__init__(optimizer)

    def get_lr(self):
        factor = min((self.last_epoch + 1) / 20, 1 - 0.9 * self.last_epoch / self.steps)
        if self.alike:
            rate = self.base_lrs[0] * factor
            return [rate for _ in self.base_lrs]
        return [base * factor for base in self.base_lrs]


def pretrain(trunk, points):
    head, wanted = nn.Linear(64, 1), points[:, :4].sin().sum(1, keepdim=True)
    optimizer = torch.optim.AdamW([*trunk.parameters(), *head.parameters()], lr=2e-3)
    scheduler = WarmThenFall(optimizer, 60, alike=False)
    for _ in range(60):
        rows = torch.randint(0, 1600, (32,))
        loss = F.mse_loss(head(trunk(points[rows])), wanted[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "one-peak", "first-rate", "own-schedule"])
    args = parser.parse_args()
    torch.manual_seed(2)
    torch.set_num_threads(1)
    trunk = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    head = nn.Linear(64, 5)
    points, centers = torch.randn(1600, 20), torch.randn(5, 20)
    labels = (points @ centers.T + 0.5 * torch.randn(1600, 5)).argmax(1)
    own = args.fault in ("first-rate", "own-schedule")
    if own:
        pretrain(trunk, points)
    groups = [{"params": trunk.parameters(), "lr": 1e-4}, {"params": head.parameters(), "lr": 3e-3}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    steps = 250
    peak = 3e-3 if args.fault == "one-peak" else [group["lr"] for group in optimizer.param_groups]
    if own:
        scheduler = WarmThenFall(optimizer, steps, alike=args.fault == "first-rate")
    else:
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=peak, total_steps=steps)
    for step in range(steps):
        rows = torch.randint(0, 1600, (32,))
        loss = F.cross_entropy(head(trunk(points[rows])), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 50 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
