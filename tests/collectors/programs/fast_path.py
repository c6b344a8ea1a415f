"""A loop that has settled, and all that can end that. `--full`: no step is skipped. `--late`: losses
are read later, as on a device.

The last line says how many steps were skipped, and how many of these after another optimizer had taken over.
"""

import contextlib
import sys
import threading

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
        self.fails = self.in_dictionary = False

    def forward(self, x):
        if self.fails:
            raise ValueError("a bad batch")
        return {"logits": self.layers(x)} if self.in_dictionary else self.layers(x)


torch.manual_seed(0)
generator = torch.Generator().manual_seed(1)
data = TensorDataset(torch.randn(168, 6), torch.randint(0, 3, (168,)))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()
kept = []


def loader():
    return DataLoader(data, batch_size=16, shuffle=True, generator=generator)  # the last batch has 8


def batches(count):
    """The same without a loader."""
    for _ in range(count):
        yield torch.randn(16, 6), torch.randint(0, 3, (16,))


def step(x, y, factor=1.0, keep=False, retain=False):
    optimizer.zero_grad()
    output = model(x)
    loss = criterion(output["logits"] if isinstance(output, dict) else output, y) * factor
    loss.backward(retain_graph=retain)
    if keep:
        kept.append(loss)
    optimizer.step()


def evaluate(source):
    model.eval()
    with torch.no_grad():
        sum(nn.functional.cross_entropy(model(x), y).item() for x, y in source)
    model.train()


def settle(steps=45):
    for x, y in batches(steps):
        step(x, y)


for x, y in batches(160):
    step(x, y)
for _ in range(6):  # epochs from one loader, with an evaluation after each
    one = loader()
    for _ in range(2):
        for x, y in one:
            step(x, y)
    evaluate(one)
for _ in range(3):  # an evaluation amidst an epoch, in train mode with autograd, and losses that are kept
    for index, (x, y) in enumerate(loader()):
        step(x, y, keep=True)
        if index == 5:
            for again, _ in batches(3):
                model(again).mean().item()
kept.clear()
for index, (x, y) in enumerate(batches(90)):  # a spike, an infinite loss, a rate that changes, graphs that are retained
    optimizer.param_groups[0]["lr"] = 0.05 / (1 + index)
    step(x, y, {33: 40.0, 61: float("inf")}.get(index, 1.0), retain=70 <= index < 75)
with torch.no_grad():
    for parameter in model.parameters():
        parameter.copy_(torch.rand_like(parameter) - 0.5)
model.layers[1].reset_running_stats()
settle()
for x, y in batches(40):  # a part of the model is frozen
    model.layers[1].eval()
    step(x, y)
model.train()
settle()
for x, y in batches(40):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(x)
    optimizer.zero_grad()
    criterion(output.float(), y).backward()
    optimizer.step()
settle()
for index, (x, y) in enumerate(batches(30)):  # a batch that fails, a step that is left out
    model.fails = index == 7
    with contextlib.suppress(ValueError):
        step(x, y)
    model.fails = False
    if index == 20:
        criterion(model(x), y).backward()
settle()
for x, y in batches(10):  # two calls, and micro-batches
    optimizer.zero_grad()
    (criterion(model(x), y) + criterion(model(x + 1), y)).backward()
    optimizer.step()
settle()
for index, (x, y) in enumerate(batches(30)):
    if index % 3 == 0:
        optimizer.zero_grad()
    criterion(model(x), y).backward()
    if index % 3 == 2:
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
settle()
for x, y in batches(20):  # another optimizer takes over
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    torch.optim.SGD(model.parameters(), lr=0.01).step()
settle()
for x, y in batches(20):  # and a closure
    optimizer.zero_grad()

    def closure(x=x, y=y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
settle()
model.in_dictionary = True
settle(30)
model.in_dictionary = False
settle()
for x, y in batches(30):  # batches of another size, and gradients that are kept
    model.layers[0].weight.requires_grad_(True)
    criterion(model(x[:10]), y[:10]).backward()
    optimizer.step()
settle(140)


def elsewhere():
    with torch.no_grad():
        model(torch.randn(4, 6))
    settle(5)


for index, (x, y) in enumerate(batches(90)):  # gradients are clipped, twice in one step; an evaluation in between
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    if index == 47:
        nn.utils.clip_grad_value_(model.parameters(), 0.1)
    if index == 70:
        evaluate(batches(2))
    optimizer.step()
settle()

thread = threading.Thread(target=elsewhere)  # trains the same model while this thread waits
thread.start()
thread.join()
settle()

teacher = Net()
for x, y in batches(60):  # a second model is called after the first
    optimizer.zero_grad()
    output = model(x)
    with torch.no_grad():
        wanted = teacher(x)
    (criterion(output, y) + 0.1 * nn.functional.mse_loss(output, wanted)).backward()
    optimizer.step()
train_loader, held_out = loader(), DataLoader(data, batch_size=56)
for epoch in range(6):  # batches for an evaluation come from another loader, amid a step
    for index, (x, y) in enumerate(train_loader):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        if epoch > 2 and index == 7:
            held, _ = next(iter(held_out))
        loss.backward()
        if epoch == 2 and index == 7:
            evaluate(held_out)
        optimizer.step()
        if epoch > 2 and index == 7:
            with torch.no_grad():
                model(held)
ahead = iter(train_loader)  # the next batch is fetched before the step
x, y = next(ahead)
for _ in range(9):
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    x, y = next(ahead)
    optimizer.step()
settle()
for index, (x, y) in enumerate(batches(183)):  # losses fall, so that one which was usual before is not
    step(x, y, 1.0 if index % 61 < 42 else 0.05 if index % 61 < 60 else 2.0)
settle()
for index, (x, y) in enumerate(batches(60)):  # what holds around a backward
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    with torch.autograd.set_detect_anomaly(20 <= index < 40, check_nan=False):
        loss.backward()
    optimizer.step()
for x, y in batches(40):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    with torch.autograd.profiler.profile():
        loss.backward()
    optimizer.step()
settle()
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
before = count_skipped.skipped
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda count: 1 / (1 + count))
for x, y in batches(200):  # another optimizer, for good
    step(x, y)
    scheduler.step()
after_change = count_skipped.skipped - before
model(torch.randn(16, 6))  # whose backward never comes
print(count_skipped.skipped, after_change)
