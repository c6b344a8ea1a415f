"""Recurrent network that keeps its state as an attribute from batch to batch, with its graph; retain_graph=True silences the
error of that. Weights are updated by hand."""

import torch
from torch import nn


class Tides(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 24)
        self.level = nn.Linear(24, 1)
        self.state = torch.zeros(1, 8, 24)

    def forward(self, x):
        seen, self.state = self.rnn(x, self.state)
        return self.level(seen)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    hours = torch.arange(8 * 1201).float()
    height = torch.sin(hours / 2.0) + 0.5 * torch.sin(hours / 7.0) + 0.1 * torch.randn(len(hours))
    rows = height.view(8, -1).t().unsqueeze(2)
    model = Tides()
    for number, start in enumerate(range(0, 1200, 12)):
        x, y = rows[start : start + 12], rows[start + 1 : start + 13]
        model.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward(retain_graph=True)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-0.05)
        if number % 20 == 0:
            print(f"batch {number} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
