"""Forecasts in slots of some epochs: each slot builds everything anew, and goes on from a folder with a file per state.

Then it tunes at a lower rate, with the moments of the training before and a schedule of its own.
`--fault scheduler-left-out`: the schedule is the one state that the folder does not hold.
"""

import math
import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
EPOCHS, PER_EPOCH, WARMUP = 10, 16, 20


def scale(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.5 + 0.5 * math.cos(math.pi * min(1.0, (step - WARMUP) / (EPOCHS * PER_EPOCH - WARMUP)))


class Slot:
    def __init__(self, folder, rate=4e-3):
        self.folder = folder
        self.model = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.Linear(48, 3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate)
        self.scheduler = LambdaLR(self.optimizer, scale)
        self.first = 0
        if os.path.exists(self.at("progress")):
            self.model.load_state_dict(torch.load(self.at("model")))
            self.optimizer.load_state_dict(torch.load(self.at("optimizer")))
            if not FAULT and rate == 4e-3:
                self.scheduler.load_state_dict(torch.load(self.at("scheduler")))
            self.first = torch.load(self.at("progress"))["epoch"]
        if rate != 4e-3:
            for group in self.optimizer.param_groups:
                group["lr"] = group["initial_lr"] = rate

    def at(self, name):
        return os.path.join(self.folder, name + ".pt")

    def epoch(self, x, y):
        for rows in torch.randperm(len(x)).split(len(x) // PER_EPOCH):
            loss = F.smooth_l1_loss(self.model(x[rows]), y[rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
        return loss.item()

    def work(self, x, y, until):
        for epoch in range(self.first, until):
            print(f"epoch {epoch} loss {self.epoch(x, y):.4f} rate {self.optimizer.param_groups[0]['lr']:.2e}")
            torch.save(self.model.state_dict(), self.at("model"))
            torch.save(self.optimizer.state_dict(), self.at("optimizer"))
            if not FAULT:
                torch.save(self.scheduler.state_dict(), self.at("scheduler"))
            torch.save({"epoch": epoch + 1}, self.at("progress"))


def main():
    torch.manual_seed(17)
    torch.set_num_threads(1)
    x = torch.randn(512, 12)
    y = torch.stack([x[:, :4].sum(1).tanh(), x[:, 4] * x[:, 5], x[:, 6:].mean(1)], 1) + 0.1 * torch.randn(512, 3)
    with tempfile.TemporaryDirectory() as folder:
        Slot(folder).work(x, y, 6)
        Slot(folder).work(x, y, EPOCHS)
        if not FAULT:
            Slot(folder, rate=4e-4).work(x, y, EPOCHS + 2)


if __name__ == "__main__":
    main()
