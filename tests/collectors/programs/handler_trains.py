"""A program whose signal handler trains, wherever the interpreter can call it inside of signals and their budget.

With `several` there are two optimizers; with `uncleared` the gradients are never cleared.

The interpreter calls handlers of signals between two instructions, mostly where a function begins. So a profile
function does here what a handler may do: at one of ten calls of these functions, it makes one step, or evaluates.
"""

import os
import random
import sys

import torch
from torch import nn

import tracelyze

FOLDERS = tuple(os.path.join(os.path.dirname(tracelyze.__file__), "collectors", *names)
                for names in (("signals", "gradients"), ("cadence",)))  # fmt: skip

torch.set_num_threads(1)
torch.manual_seed(0)
several, clears = sys.argv[1] == "several", sys.argv[1] != "uncleared"
chances = random.Random(0)
model, other = nn.Linear(4, 2), nn.Linear(4, 1)  # A backward that is cut by a step needs no weights.
optimizers = [torch.optim.SGD(model.parameters(), lr=0.01)]
if several:
    optimizers.append(torch.optim.Adam(other.parameters(), lr=0.001))
made = 0
interruptions = 0


def step():
    global made
    if clears:
        for optimizer in optimizers:
            optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    if several:
        loss = loss + other(torch.randn(8, 4)).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    made += 1


@torch.enable_grad()
def handler():
    if interruptions % 3:
        step()
    else:
        with torch.no_grad():
            model(torch.randn(2, 4))


def interrupt(frame, event, _argument):
    global interruptions
    if event == "call" and frame.f_code.co_filename.startswith(FOLDERS) and chances.random() < 0.1:
        interruptions += 1
        handler()


for _ in range(4):
    sys.setprofile(interrupt)
    for _ in range(50):
        step()
    sys.setprofile(None)
    for _ in range(30):
        step()
print(made, interruptions)
