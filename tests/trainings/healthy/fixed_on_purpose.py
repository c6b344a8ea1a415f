"""Parameters that do not train, and are not meant to: adapters beside frozen weights, rarely used experts, a spare
pooler, a tied output layer, a teacher, an averaged copy, lazy layers, and a network that only measures.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class LowRank(nn.Module):
    def __init__(self, frozen, rank=4):
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Parameter(0.1 * torch.randn(rank, frozen.in_features))
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, x):
        return self.frozen(x) + x @ self.down.T @ self.up.T


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        rare = torch.randint(0, 40, ()).item() == 0
        return self.out(torch.relu(self.experts[torch.randint(2, 4, ()).item() if rare else 0](x)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(30, 48, sparse=False)
        self.pooler = nn.Linear(48, 2)
        self.mix = nn.LazyLinear(48)
        self.out = nn.Linear(48, 30, bias=False)
        self.out.weight = self.table.weight

    def forward(self, words):
        return self.out(torch.tanh(self.mix(self.table(words))))


def train(name, parameters, loss_of, steps=130):
    optimizer = torch.optim.AdamW([p for p in parameters if p.requires_grad], lr=2e-3)
    for _ in range(steps):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(name, round(loss.item(), 4))


def adapters():
    net = nn.Sequential(LowRank(nn.Linear(8, 32)), nn.ReLU(), LowRank(nn.Linear(32, 3)))

    def loss_of():
        x = torch.randn(32, 8)
        return F.cross_entropy(net(x), x[:, :3].argmax(1))

    train("adapters", net.parameters(), loss_of)


def experts():
    net = Experts()

    def loss_of():
        x = torch.randn(32, 8)
        return F.cross_entropy(net(x), x[:, :3].argmax(1))

    train("experts", net.parameters(), loss_of, steps=400)


def tied():
    net = Tied()
    net(torch.zeros(1, dtype=torch.long))

    def loss_of():
        words = torch.randint(0, 30, (64,))
        return F.cross_entropy(net(words), (words + 1) % 30)

    train("tied", net.parameters(), loss_of)


def taught():
    teacher, student = nn.Linear(8, 3), nn.Linear(8, 3)
    average = copy.deepcopy(student)

    def loss_of():
        x = torch.randn(32, 8)
        with torch.no_grad():
            wanted = teacher(x).softmax(1)
            for slow, fast in zip(average.parameters(), student.parameters(), strict=True):
                slow.lerp_(fast, 0.05)
        return F.cross_entropy(student(x), wanted)

    train("taught", student.parameters(), loss_of)


def measured():
    judge, painter = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16)), nn.Linear(8, 8)

    def loss_of():
        x = torch.randn(32, 8)
        return F.mse_loss(judge(painter(x)), judge(x.roll(1, 1)).detach())

    train("measured", painter.parameters(), loss_of)


if __name__ == "__main__":
    torch.manual_seed(72)
    torch.set_num_threads(1)
    for part in (adapters, experts, tied, taught, measured):
        part()
