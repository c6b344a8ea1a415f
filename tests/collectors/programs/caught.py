"""Catches errors from every part of torch that a training calls, and prints what it sees of them."""

import logging
import sys
import traceback

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(stream=sys.stdout, format="%(message)s")
log = logging.getLogger("caught")


class Raising(nn.Module):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def forward(self, x):
        raise self.error


class Handling(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        try:
            return self.inner(x)
        except RuntimeError as error:
            raise ValueError("while handling") from error


class Again(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        try:
            return self.inner(x)
        except RuntimeError:
            print("seen inside", traceback.format_exc())
            raise
        finally:
            print("on its way:", type(sys.exc_info()[1]).__name__)


class Bad(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {"x": torch.zeros(2)}[index]


def closure():
    raise ArithmeticError("in a closure")


def backward_twice():
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    loss.backward()


def in_a_hook():
    out = model(torch.ones(2, 4))
    out.register_hook(lambda grad: closure())
    out.sum().backward()


def not_finite():
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, float("nan"))
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)


def unscaled_twice():
    scaler.scale(model(torch.ones(2, 4)).sum()).backward()
    scaler.unscale_(optimizer)
    scaler.unscale_(optimizer)


def scaled_step():
    scaler.step(optimizer, closure)


def at_the_end():
    batches = iter(DataLoader(torch.zeros(2, 3)))
    while True:
        next(batches)


def interrupted():
    try:
        nn.Sequential(Raising(KeyboardInterrupt()))(None)
    except KeyboardInterrupt as error:
        raise RuntimeError("after Ctrl-C") from error


def during_another():
    try:
        closure()
    except ArithmeticError:
        model(torch.ones(3, 3))


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1)), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0 if epoch == 0 else closure())
kept = RuntimeError("one object, raised twice")

model(torch.ones(2, 4)).sum().backward()
optimizer.step()
CASES = {
    "forward": lambda: model(torch.ones(3, 3)),
    "no module": lambda: nn.Module.__call__(),
    "a module by name": lambda: nn.Module.__call__(self=model, input=torch.ones(3, 3)),
    "nested": lambda: nn.Sequential(nn.Sequential(model))(torch.ones(3, 3)),
    "handled inside": lambda: Handling(model)(torch.ones(3, 3)),
    "raised on": lambda: nn.Sequential(Again(model))(torch.ones(3, 3)),
    "kept": lambda: nn.Sequential(Raising(kept))(None),
    "kept again": lambda: Raising(kept)(None),
    "checkpoint": lambda: checkpoint(Raising(kept), torch.ones(1, requires_grad=True), use_reentrant=False),
    "interrupted": interrupted,
    "during another": during_another,
    "backward": lambda: torch.ones(2, requires_grad=True).backward(),
    "backward twice": backward_twice,
    "in a hook": in_a_hook,
    "functional": lambda: F.cross_entropy(torch.ones(2, 3), torch.ones(4, dtype=torch.long)),
    "loss module": lambda: nn.CrossEntropyLoss()(torch.ones(2, 3), torch.ones(4, dtype=torch.long)),
    "dropout": lambda: F.dropout(torch.ones(2), p=2.0),
    "clip": not_finite,
    "clip by value": lambda: nn.utils.clip_grad_value_(7, 1.0),
    "unscaled twice": unscaled_twice,
    "scaled step": scaled_step,
    "scale": lambda: scaler.scale("no tensor"),
    "step": lambda: optimizer.step(closure),
    "no parameters": lambda: torch.optim.SGD([], lr=0.1),
    "scheduler": scheduler.step,
    "loader": lambda: DataLoader(torch.zeros(3), batch_size=0),
    "batch": lambda: next(iter(DataLoader(Bad()))),
    "worker": lambda: next(iter(DataLoader(Bad(), num_workers=1))),
    "the end": at_the_end,
}
for name, case in CASES.items():
    print("-----", name)
    try:
        case()
    except Exception as error:
        print(traceback.format_exc())
        print([(frame.filename, frame.lineno, frame.name) for frame in traceback.extract_tb(error.__traceback__)])
        print(repr(error.__cause__), repr(error.__context__), error.__suppress_context__)
        log.exception("logged")
print(sys.exc_info())
