"""Multi-task network: shared trunk, two heads, one optimizer. The step clears `model.trunk` alone, so the heads'
gradients add up: `model.trunk.zero_grad()` should be `model.zero_grad()`.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Settings:
    steps: int = 500
    batch: int = 64
    lr: float = 0.01


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU())
        self.value = nn.Linear(64, 1)
        self.kind = nn.Linear(64, 3)

    def forward(self, x):
        h = self.trunk(x)
        return {"value": self.value(h).squeeze(1), "kind": self.kind(h)}


def losses(output, value, kind):
    return {"value": F.mse_loss(output["value"], value), "kind": F.cross_entropy(output["kind"], kind)}


def main(settings):
    torch.manual_seed(18)
    torch.set_num_threads(1)
    mixing = torch.randn(12, 3)
    model = MultiTask()
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.lr)
    for step in range(settings.steps):
        x = torch.randn(settings.batch, 12)
        value, kind = torch.tanh(x[:, 0] - x[:, 1]), (x @ mixing).argmax(1)
        parts = losses(model(x), value, kind)
        model.trunk.zero_grad()
        sum(parts.values()).backward()
        optimizer.step()
        if step % 100 == 99:
            print(step + 1, {name: round(part.item(), 4) for name, part in parts.items()})


if __name__ == "__main__":
    main(Settings())
