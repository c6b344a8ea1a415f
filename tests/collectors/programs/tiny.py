"""A tiny training: `tiny.py STEPS [--break SIGNAL] [--kill]`. It can break one signal of the collector's, and kill
itself once the rows of its last step are on disk."""

import argparse
import os
import signal

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("steps", type=int)
parser.add_argument("--break", dest="broken")
parser.add_argument("--kill", action="store_true")
parser.add_argument("--finish", action="store_true")
arguments = parser.parse_args()


def break_signal(name):
    from tracelyze.collectors.signals import SIGNALS

    def broken(self, tracked, row):
        return 1 / (tracked.count - tracked.count)

    next(kind for kind in SIGNALS if kind.name == name).after_step = broken


if arguments.broken:
    from tracelyze.collectors.hooks import process_recorders
    from tracelyze.collectors.recording import per_thread, recorder

    break_signal(arguments.broken)
    old = process_recorders.recorder()
    process_recorders.held[0] = per_thread.Recorders(recorder.Recorder(torch, old.run, old.options))

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
for _ in range(arguments.steps):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
if arguments.kill:
    from tracelyze.collectors.hooks import process_recorders

    process_recorders.recorder().flush()  # as the writer does twice a second
    os.kill(os.getpid(), signal.SIGKILL)
