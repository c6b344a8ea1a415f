"""Fit a sine with a best-weights copy at hand. The loop clears the gradients of `best`, the copy, instead of
`model`'s: `best.zero_grad()` is the wrong line.
"""

import copy

import torch
from torch import nn


class Sine(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(1, 50), nn.Linear(50, 50), nn.Linear(50, 1)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.sin(layer(x))
        return self.layers[-1](x)


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        error = nn.functional.mse_loss(model(x), y).item()
    model.train()
    return error


def main():
    torch.manual_seed(14)
    torch.set_num_threads(1)
    x = torch.rand(2000, 1) * 6 - 3
    y = torch.sin(2 * x) + 0.1 * torch.randn_like(x)
    x_val = torch.linspace(-3, 3, 200).unsqueeze(1)
    y_val = torch.sin(2 * x_val)
    model = Sine()
    best, lowest = copy.deepcopy(model), float("inf")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.5)
    for step in range(700):
        pick = torch.randint(0, 2000, (100,))
        best.zero_grad()
        loss = nn.functional.mse_loss(model(x[pick]), y[pick])
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            error = evaluate(model, x_val, y_val)
            if error < lowest:
                lowest = error
                best.load_state_dict(model.state_dict())
            print(f"step {step}: val error {error:.4f} (lowest {lowest:.4f})")


if __name__ == "__main__":
    main()
