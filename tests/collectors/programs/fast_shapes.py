"""Loops that have settled into steps of several backwards, or into steps whose closure calls the model, of a model that
takes names and returns its loss in a dict. `--full`: no step is skipped. `--late`: losses are read later,
as on a device.

The last line says how many steps were skipped of each.
"""

import sys

import count_skipped
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tracelyze.collectors.recording.fast_path import path as fast_path

if "--full" in sys.argv:
    fast_path.SKIPPED_STEPS = 0
if "--late" in sys.argv:
    import as_on_a_device  # noqa: F401


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 3))

    def forward(self, x, labels):
        logits = self.layers(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


torch.manual_seed(0)
generator = torch.Generator().manual_seed(1)
data = TensorDataset(torch.randn(168, 6), torch.randint(0, 3, (168,)))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
kept = []


def loader():
    return DataLoader(data, batch_size=16, shuffle=True, generator=generator)  # the last batch has 8


def batches(count):
    for _ in range(count):
        yield torch.randn(16, 6), torch.randint(0, 3, (16,))


def evaluate():
    model.eval()
    with torch.no_grad():
        sum(model(x=x, labels=y)["loss"].item() for x, y in batches(2))
    model.train()


def accumulate(source, parts=4, divisor=1.0, odd=()):
    """`odd`: numbers of micro-batches that are unlike the others, and how."""
    before = None
    for index, (x, y) in enumerate(source):
        if index % parts == 0:
            optimizer.zero_grad()
        if (index, "evaluated") in odd:
            evaluate()
        if (index, "smaller") in odd:
            x, y = x[:10], y[:10]
        if (index, "again") in odd:
            x, y = before
        output = model(x=x, labels=y)
        loss = output["loss"] / (2 * divisor if (index, "divided") in odd else divisor)
        if (index, "kept") in odd:
            kept.append(output["logits"])
        (loss * 40.0 if (index, "high") in odd else loss).backward(retain_graph=(index, "retained") in odd)
        before = x, y
        if (index, "cleared") in odd:
            optimizer.zero_grad()
        if index % parts == parts - 1 or (index, "early") in odd:
            optimizer.step()


def in_closures(source, parts=1, twice=()):
    """As Lightning does: the last backward of a step is called within it."""
    for index, (x, y) in enumerate(source):

        def closure(x=x, y=y, index=index):
            loss = model(x=x, labels=y)["loss"]
            if index % parts == 0:
                optimizer.zero_grad()
            loss.backward()
            if index in twice:
                model(x=x, labels=y)["loss"].backward()
            return loss

        optimizer.step(closure) if index % parts == parts - 1 else closure()


def counted(loops):
    before = count_skipped.skipped
    loops()
    return count_skipped.skipped - before


def weighted(steps):
    """A loss that the script multiplies by a constant."""
    for x, y in batches(steps):
        optimizer.zero_grad()
        (model(x=x, labels=y)["loss"] * 0.5).backward()
        optimizer.step()


def plainly():
    weighted(120)
    accumulate(batches(200), parts=1)
    accumulate(batches(80), parts=1, odd={(index, "kept") for index in range(30, 40)})
    kept.clear()


def accumulated():
    for divisor in (1.0, 4.0):
        accumulate(batches(200), divisor=divisor)
        for turn, what in enumerate(
            ("evaluated", "smaller", "again", "divided", "high", "retained", "cleared", "early")
        ):
            accumulate(batches(80), divisor=divisor, odd={(24 + turn, what), (55 - turn, what)})
    for _ in range(10):  # each pass ends amid a step, with a batch that is smaller
        accumulate(loader(), parts=3)


def within_steps():
    in_closures(batches(140))
    in_closures(batches(80), twice={20, 50, 71})
    for _ in range(5):
        in_closures(loader())
    in_closures(batches(200), parts=2)
    in_closures(batches(100), parts=2, twice={31, 70})


print(*[counted(loops) for loops in (plainly, accumulated, within_steps)])
