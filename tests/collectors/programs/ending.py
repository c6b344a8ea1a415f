"""Train 200 steps, then end in the way that the argument names. With "loop FILE": train for ever, count into FILE."""

import atexit
import os
import signal
import sys
import time

import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
how = sys.argv[1]


def forward(x):
    return model(x)


def train_step():
    loss = forward(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


if how == "loop":
    done = 0
    with open(sys.argv[2], "wb", buffering=0) as counter:
        while True:
            train_step()
            done += 1
            counter.seek(0)
            counter.write(b"%012d %018.6f" % (done, time.time()))
            time.sleep(0.002)

for _ in range(200):
    train_step()
if how == "exit":
    sys.exit(3)
if how == "exit in a fork":
    child = os.fork()
    if child == 0:
        sys.exit(9)
    os.waitpid(child, 0)
    sys.exit(4)
if how == "exit at exit":
    atexit.register(lambda: os.waitpid(os.fork() or os.execv(sys.executable, [sys.executable, "-c", "exit(8)"]), 0))
    sys.exit(6)
if how == "os._exit":
    os._exit(5)
if how == "raise":
    forward(torch.randn(3, 3))
if how == "raise-in-except":
    try:
        forward(torch.randn(3, 3))
    except RuntimeError as error:
        raise ValueError("while handling") from error
if how == "replaced-hook":
    sys.excepthook = lambda *_: print("own hook", file=sys.stderr)
    forward(torch.randn(3, 3))
if how == "handled":
    try:
        forward(torch.randn(3, 3))
    except RuntimeError:
        print("handled")
if how == "own-handler":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1)
if how.startswith("SIG"):
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(1)
print("end")
