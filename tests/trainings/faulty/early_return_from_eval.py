"""evaluate() returns early when the score is no new best, before it switches back to train mode."""

import torch
from torch import nn


class Run:
    def __init__(self):
        torch.manual_seed(14)
        torch.set_num_threads(1)
        self.net = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.4), nn.Linear(64, 4))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=2e-3)
        self.x = torch.randn(1300, 16)
        self.y = (self.x[:, :4] * self.x[:, 4:8]).argmax(1)
        self.best = 0.0

    def evaluate(self):
        self.net.eval()
        with torch.no_grad():
            score = (self.net(self.x[1000:]).argmax(1) == self.y[1000:]).float().mean().item()
        if score <= self.best + 0.02:
            return score
        self.best = score
        self.net.train()
        return score

    def go(self):
        self.net.train()
        for number in range(18):
            for rows in torch.randperm(1000).split(40):
                loss = nn.functional.cross_entropy(self.net(self.x[rows]), self.y[rows])
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            print(number, f"{loss.item():.3f} {self.evaluate():.3f}")


Run().go()
