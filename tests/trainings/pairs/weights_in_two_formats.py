"""A network in bfloat16 whose optimizer steps copies of the weights in float32. It is trained, and fine-tuned anew.

`--fault copied-before`: the copies are made before the weights of the file are loaded, and the first step writes them
over those.
"""

import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""


class Copies:
    """Adam on copies of the weights in float32."""

    def __init__(self, model, rate):
        self.weights = list(model.parameters())
        self.copies = [one.detach().clone().float().requires_grad_() for one in self.weights]
        self.optimizer = torch.optim.Adam(self.copies, lr=rate)

    @torch.no_grad()
    def step(self):
        for copied, weight in zip(self.copies, self.weights, strict=True):
            copied.grad = weight.grad.float()
        self.optimizer.step()
        for copied, weight in zip(self.copies, self.weights, strict=True):
            weight.copy_(copied)
            weight.grad = None


def train(model, optimizer, slope, steps):
    for step in range(steps):
        x = torch.randn(32, 10)
        y = (x * slope).sum(1, keepdim=True).tanh()
        loss = nn.functional.mse_loss(model(x.bfloat16()).float(), y)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


def make():
    return nn.Sequential(nn.Linear(10, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1)).bfloat16()


torch.manual_seed(0)
torch.set_num_threads(1)
slope = torch.randn(10)
model = make()
train(model, Copies(model, 3e-3), slope, 300)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "weights.pt"
    torch.save(model.state_dict(), path)
    model = make()
    optimizer = Copies(model, 3e-4) if FAULT == "copied-before" else None
    model.load_state_dict(torch.load(path))
    optimizer = optimizer or Copies(model, 3e-4)
train(model, optimizer, slope + 0.1, 150)
