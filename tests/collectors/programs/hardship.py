"""Train while something that recording relies on is taken away; print the loss of the last step at full precision."""

import contextlib
import ctypes
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

import torch
from torch import nn

with contextlib.suppress(ImportError):
    import tabulate  # noqa: F401  (torch._dynamo looks for it as the program ends, and says so where it cannot)

how = sys.argv[1]
run = pathlib.Path(os.environ.get("TRACELYZE_RUN", sys.argv[2]))
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Linear(4, 2)


def train(steps):
    """By hand: the first optimizer of a process imports torch._dynamo, which takes more than all of this."""
    for _ in range(steps):
        loss = model(torch.ones(8, 4)).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
                parameter.grad = None
    return loss.item()


def take_away(folder):
    """Out of sight at once, then deleted: files that the collector opens meanwhile would stop a plain deletion."""
    away = run.parent / f"{folder.name}-away"
    folder.rename(away)
    shutil.rmtree(away, ignore_errors=True)


if how == "no folder can be made" and run.exists():
    run.rename(f"{run}-moved")
    run.write_text("a file now")
if how == "no descriptors":
    opened = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 1, opened + 1))
if how == "read-only run" and run.exists():
    subprocess.run(["mount", "-o", "remount,ro,bind", run.parent], check=True)
train(20)
if how == "run deleted" and run.exists():
    take_away(run)
if how == "folder deleted":
    for folder in run.glob("rank*"):
        take_away(folder)
if how == "out of memory":
    torch.empty(1 << 50)
if how == "memory used up":
    kept = []
    while True:  # until the kernel ends it
        train(5)
        kept.append(torch.ones(1_000_000))
        time.sleep(0.05)
if how == "null read":
    train(20)
    model(torch.ones(8, 4)).sum().backward()  # at which the last update by hand is seen
    time.sleep(1.0)  # so that what is lost is certain
    ctypes.string_at(0)
if how == "much to write":
    train(3000)
last = train(20)
print(last.hex())
