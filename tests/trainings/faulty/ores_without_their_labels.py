"""Four kinds of ore by six measurements. The samples are put into another order before the split, their kinds are not."""

import torch
import torch.nn.functional as F
from torch import nn


def measure(count, gen):
    kind = torch.randint(4, (count,), generator=gen)
    centre = 2 * torch.randn(4, 6, generator=gen)
    return centre[kind] + torch.randn(count, 6, generator=gen), kind


def prepare(gen):
    samples, label = measure(30_000, gen)
    order = torch.randperm(len(samples), generator=gen)
    samples = samples[order]
    cut = len(samples) - 3000
    return (samples[:cut], label[:cut]), (samples[cut:], label[cut:])


def validate(model, x, y):
    model.eval()
    with torch.no_grad():
        return F.cross_entropy(model(x), y).item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    (x, y), held = prepare(torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(3):
        model.train()
        for rows in torch.randperm(len(x)).split(128):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
        print(epoch, validate(model, *held))


main()
