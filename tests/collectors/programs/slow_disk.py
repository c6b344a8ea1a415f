"""Trains on a disk that takes SECONDS for each operation, and prints the operations of the recording as JSON: what was
called, on which thread, and how many seconds after the last step (below 0: before).

`slow_disk.py SECONDS`
"""

import atexit
import json
import os
import sys
import threading
import time

SECONDS = float(sys.argv[1])
operations = []
ended = []


def slowly(name, function):
    def slow(*args, **kwargs):
        if str(args[0]).startswith(("/proc", "/sys")):  # the kernel answers, and no disk
            return function(*args, **kwargs)
        time.sleep(SECONDS)
        operations.append((name, threading.current_thread().name, time.monotonic()))
        return function(*args, **kwargs)

    return slow


def tell():
    real_write(1, json.dumps([(name, thread, at - ended[0]) for name, thread, at in operations]).encode())


real_write = os.write
atexit.register(tell)  # before torch is imported: it runs after the recording has ended

import torch  # noqa: E402
from torch import nn  # noqa: E402

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for name in ("open", "write", "fsync", "replace", "unlink"):
    setattr(os, name, slowly(name, getattr(os, name)))
for _ in range(60):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.01)
ended.append(time.monotonic())
