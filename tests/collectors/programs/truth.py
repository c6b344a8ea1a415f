"""Trains in several idioms and prints, for each, the loss of every step as the program itself defines it."""

import json

import torch
from torch import nn
from torch.nn import functional

STEPS, MICRO = 4, 4


def batches(step):
    generator = torch.Generator().manual_seed(step)
    for number in range(MICRO):
        targets = torch.randint(0, 5, (6,), generator=generator)
        targets[: (step + number) % 4] = -100  # a different number of targets counts in each
        yield torch.randn(6, 8, generator=generator), targets


def mean_of_all(model, step):
    """The loss that one large batch would have."""
    inputs, targets = zip(*batches(step), strict=True)
    return functional.cross_entropy(model(torch.cat(inputs)), torch.cat(targets)).item()


def run(name, losses):
    torch.manual_seed(0)
    model = nn.Linear(8, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth = []
    for step in range(STEPS):
        truth.append(losses(model, step))
        optimizer.step()
        optimizer.zero_grad()
    print(name, json.dumps(truth))


def divided_by_targets_of_step(model, step, as_tensor=False):
    """As the Hugging Face Trainer does with num_items_in_batch."""
    total = sum(int((targets != -100).sum()) for _, targets in batches(step))
    divisor = torch.tensor(total) if as_tensor else total
    with torch.no_grad():
        truth = mean_of_all(model, step)
    for inputs, targets in batches(step):
        (functional.cross_entropy(model(inputs), targets, reduction="sum") / divisor).backward()
    return truth


def divided_by_a_tensor(model, step):
    return divided_by_targets_of_step(model, step, as_tensor=True)


def divided_by_own_targets(model, step):
    """Each micro-batch has a mean of its own, and nobody divides by their number."""
    values = []
    for inputs, targets in batches(step):
        loss = functional.cross_entropy(model(inputs), targets, reduction="sum") / int((targets != -100).sum())
        values.append(loss.item())
        loss.backward()
    return sum(values) / len(values)


def divided_by_number(model, step):
    values = []
    for inputs, targets in batches(step):
        loss = functional.cross_entropy(model(inputs), targets)
        values.append(loss.item())
        (loss / MICRO).backward()
    return sum(values) / len(values)


def two_roots(model, step):
    (inputs, targets), *_ = batches(step)
    first, second = functional.cross_entropy(model(inputs), targets), model.weight.square().sum()
    torch.autograd.backward([first, second])
    return (first + second).item()


for losses in (
    divided_by_targets_of_step, divided_by_a_tensor, divided_by_own_targets, divided_by_number, two_roots,
):  # fmt: skip
    run(losses.__name__, losses)
