"""One optimizer, three steps of each kind; prints how many batches went into each step, and how many calls it made."""

import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(96, 6)
truth = []


def step(batches, calls):
    truth.append((batches, calls))
    optimizer.step()
    optimizer.zero_grad()


for _ in range(3):  # accumulation over slices
    for first in range(0, 96, 24):
        (model(data[first : first + 24]).square().mean() / 4).backward()
    step(4, 4)
for _ in range(3):  # accumulation over batches that are made on the spot, whose memory is used again
    for _ in range(3):
        (model(torch.randn(24, 6)).square().mean() / 3).backward()
    step(3, 3)
for _ in range(3):  # two losses of one batch
    output = model(data[:24])
    output.mean().backward(retain_graph=True)
    output.square().mean().backward()
    step(1, 1)
for _ in range(3):  # two passes over one batch, as sharpness-aware minimisation makes them
    batch = torch.randn(24, 6)
    for _ in range(2):
        model(batch.clone()).square().mean().backward()
    step(1, 2)
for _ in range(3):  # two inputs, one loss
    (model(data[:24]) - model(data[24:48])).square().mean().backward()
    step(1, 2)
for _ in range(3):  # an episode that gets longer
    for _ in range(5):
        model(torch.randn(1, 6))
    model(data[:24]).square().mean().backward()
    step(1, 6)
for _ in range(150):  # one batch a step, until steps are passed over
    model(torch.randn(24, 6)).square().mean().backward()
    step(1, 1)
print(json.dumps(truth))
