"""What comes in between when a loop has settled. `fork`: children that go on training, from any point of a step.
`handler`: signals, whose handler trains and evaluates the same model. `rates`: a learning rate that is no number.
`unused`: the model is called, and then not trained. `device`: all runs with a default device; `mode`: in a mode of the
program's own.

Every process says how many steps it made and how many of them took the fast path.
"""

import os
import signal
import sys

import count_skipped
import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
made = 0


class Descent(torch.optim.Optimizer):
    """Takes a list for a rate, too."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            rates = group["lr"] if isinstance(group["lr"], list) else [group["lr"]]
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-rates[0])


def nothing(_point):
    pass


def step(at=nothing):
    """One step; `at` is called at every point of it."""
    global made
    at("begin")
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    at("forward")
    loss.backward()
    at("backward")
    optimizer.step()
    made += 1
    at("step")


def train(steps):
    for _ in range(steps):
        step()


def forks(point):
    """A child goes on from this point, and this process when the child has ended."""

    def at(here):
        global made
        if here == point:
            child = os.fork()
            if child:
                os.waitpid(child, 0)
            else:
                made = count_skipped.skipped = 0
                is_child.append(True)

    is_child = []
    step(at)
    if is_child:
        train(300)
        print(made, count_skipped.skipped, flush=True)
        os._exit(0)


@torch.enable_grad()
def handler(*_):
    global calls
    calls += 1
    if calls % 2:
        step()
    else:
        with torch.no_grad():
            model(torch.randn(2, 4))


if sys.argv[1] == "device":
    torch.set_default_device("cpu")
elif sys.argv[1] == "mode":
    torch.overrides.BaseTorchFunctionMode().__enter__()
elif sys.argv[1] == "rates":
    optimizer = Descent(model.parameters())
train(300)
if sys.argv[1] == "rates":
    settled = count_skipped.skipped
    while count_skipped.skipped == settled or count_skipped.skipped % 5:  # amid steps that are skipped
        step()
    optimizer.param_groups[0]["lr"] = [0.01, 0.1]
    train(200)
elif sys.argv[1] == "unused":
    for _ in range(200):
        optimizer.zero_grad()
        model(torch.randn(8, 4))
        (1.0 + 1e-3 * model.weight.square().sum()).backward()
        optimizer.step()
        made += 1
elif sys.argv[1] in ("device", "mode"):
    pass
elif sys.argv[1] == "fork":
    for point in ("begin", "forward", "backward", "step"):
        forks(point)
        train(35)
else:
    calls = 0
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)  # seconds, of which a step takes a thirtieth
    while calls < 150:
        step()
    signal.setitimer(signal.ITIMER_REAL, 0)
print(made, count_skipped.skipped)
