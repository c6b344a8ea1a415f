"""One optimizer, three steps of each kind; prints how many different batches went into each step."""

import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(96, 6)
truth = []


def step(batches):
    truth.append(batches)
    optimizer.step()
    optimizer.zero_grad()


for _ in range(3):  # accumulation over slices
    for first in range(0, 96, 24):
        (model(data[first : first + 24]).square().mean() / 4).backward()
    step(4)
for _ in range(3):  # accumulation over batches that are made on the spot, whose memory is used again
    for _ in range(3):
        (model(torch.randn(24, 6)).square().mean() / 3).backward()
    step(3)
for _ in range(3):  # two losses of one batch
    output = model(data[:24])
    output.mean().backward(retain_graph=True)
    output.square().mean().backward()
    step(1)
for _ in range(3):  # two passes over one batch, as sharpness-aware minimisation makes them
    batch = torch.randn(24, 6)
    for _ in range(2):
        model(batch.clone()).square().mean().backward()
    step(1)
for _ in range(3):  # two inputs, one loss
    (model(data[:24]) - model(data[24:48])).square().mean().backward()
    step(1)
for _ in range(150):  # one batch a step, until steps are passed over
    model(torch.randn(24, 6)).square().mean().backward()
    step(1)
print(json.dumps(truth))
