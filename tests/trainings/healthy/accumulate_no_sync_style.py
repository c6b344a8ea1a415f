"""An accumulator context in the manner of distributed frameworks: `with engine.accumulate():` decides when to step."""

import contextlib

import torch
from torch import nn


class Engine:
    def __init__(self, model, optimizer, every):
        self.model, self.optimizer, self.every = model, optimizer, every
        self.count, self.sync = 0, False

    @contextlib.contextmanager
    def accumulate(self):
        self.count += 1
        self.sync = self.count % self.every == 0
        yield self

    def backward(self, loss):
        (loss / self.every).backward()

    def step(self):
        if self.sync:
            self.optimizer.step()

    def zero_grad(self):
        if self.sync:
            self.optimizer.zero_grad(set_to_none=True)


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    w = torch.randn(20, 5)
    model = nn.Sequential(nn.Linear(20, 96), nn.ReLU(), nn.Linear(96, 5))
    engine = Engine(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), every=3)
    for micro in range(900):
        with engine.accumulate():
            x = torch.randn(16, 20)
            loss = nn.functional.cross_entropy(model(x), (x @ w).argmax(1))
            engine.backward(loss)
            engine.step()
            engine.zero_grad()
        if micro % 150 == 0:
            print(f"micro-step {micro} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
