"""Searches for a learning rate before it trains: a copy of the model is trained for 90 steps at rates that rise from
1e-6 to 30, and blows up on purpose. The training that follows uses a tenth of the best one.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRIED = 90


def reeds(count, seed):
    drawn = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, 4, (count,), generator=drawn)
    centres = 1.2 * torch.randn(4, 12, generator=torch.Generator().manual_seed(3))
    return TensorDataset(centres[kinds] + torch.randn(count, 12, generator=drawn), kinds)


def endless(loader):
    while True:
        yield from loader


def find_rate(model, loader, lowest=1e-6, highest=30.0):
    trial = copy.deepcopy(model)
    optimizer = torch.optim.SGD(trial.parameters(), lr=lowest, momentum=0.9)
    rising = torch.optim.lr_scheduler.ExponentialLR(optimizer, (highest / lowest) ** (1 / TRIED))
    tried = []
    for _, (inputs, kinds) in zip(range(TRIED), endless(loader), strict=False):
        loss = F.cross_entropy(trial(inputs), kinds)
        tried.append((loss.item(), optimizer.param_groups[0]["lr"]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rising.step()
    return min(tried)[1] / 10


@torch.no_grad()
def validate(model, loader):
    model.eval()
    losses = [F.cross_entropy(model(inputs), kinds).item() for inputs, kinds in loader]
    model.train()
    return sum(losses) / len(losses)


torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(reeds(1600, 1), batch_size=32, shuffle=True)
held_out = DataLoader(reeds(400, 2), batch_size=200)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
rate = find_rate(model, loader)
optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
for epoch in range(6):
    for inputs, kinds in loader:
        loss = F.cross_entropy(model(inputs), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: rate {rate:.3g}, validation loss {validate(model, held_out):.4f}")
