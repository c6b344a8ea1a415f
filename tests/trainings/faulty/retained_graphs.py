"""Dictionary of losses per step is kept for later plots, and `backward(retain_graph=True)` keeps its graphs whole."""

import torch
import torch.nn.functional as F
from torch import nn


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 200), nn.Tanh(), nn.Linear(200, 200), nn.Tanh())
        self.a, self.b = nn.Linear(200, 1), nn.Linear(200, 4)

    def forward(self, x):
        h = self.body(x)
        return self.a(h).squeeze(1), self.b(h)


def main():
    torch.manual_seed(39)
    torch.set_num_threads(1)
    model = TwoHeads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    w = torch.randn(20, 4)
    history = []
    for step in range(400):
        x = torch.randn(48, 20)
        a, b = model(x)
        losses = {"regression": F.l1_loss(a, x[:, 0]), "classes": F.cross_entropy(b, (x @ w).argmax(1))}
        losses["total"] = losses["regression"] + losses["classes"]
        optimizer.zero_grad()
        losses["total"].backward(retain_graph=True)
        optimizer.step()
        history.append(losses)
        if step % 80 == 0:
            print(step, {name: round(value.item(), 4) for name, value in losses.items()})


if __name__ == "__main__":
    main()
