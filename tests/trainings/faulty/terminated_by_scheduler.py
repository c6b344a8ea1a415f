"""The batch system asks the process to end with SIGTERM at step 180 and the script has no handler for it."""

import os
import signal

import torch
import torch.nn.functional as F
from torch import nn


class Preemption:
    def __init__(self, at):
        self.at = at

    def __call__(self, step):
        if step == self.at:
            os.kill(os.getpid(), signal.SIGTERM)


def main(callbacks):
    torch.manual_seed(14)
    torch.set_num_threads(1)
    w = torch.randn(16, 4)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(400):
        x = torch.randn(32, 16)
        loss = F.cross_entropy(model(x), (x @ w).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for callback in callbacks:
            callback(step)
        if step % 60 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main([Preemption(180)])
