"""Predict the yield of a vat; the loss is computed in a closure that the optimizer calls, as frameworks do.

The wrong line is `model = Vat().to(torch.bfloat16)`: at this rate most updates round away.
"""

import torch
from torch import nn


class Vat(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1)


def main():
    torch.manual_seed(29)
    torch.set_num_threads(1)
    x = torch.randn(4000, 10)
    y = torch.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.1 * torch.randn(4000)
    model = Vat().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    for step in range(500):
        at = torch.randint(0, 4000, (64,))

        def closure(at=at):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x[at].bfloat16()).float(), y[at])
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        if step % 100 == 99:
            print(step, loss.item())


if __name__ == "__main__":
    main()
