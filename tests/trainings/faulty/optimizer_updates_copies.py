"""A hand-written momentum optimizer that updates weights in place, but assigns the new value of one-dimensional
parameters to a local name: biases and norms stay at their initial values.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Momentum(torch.optim.Optimizer):
    def __init__(self, params, lr=0.05, momentum=0.9):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                velocity = state.setdefault("velocity", torch.zeros_like(p))
                velocity.mul_(group["momentum"]).add_(p.grad)
                if p.dim() > 1:
                    p.sub_(velocity, alpha=group["lr"])
                else:
                    p = p - group["lr"] * velocity


def main():
    torch.manual_seed(74)
    torch.set_num_threads(1)
    x = torch.randn(1200, 12)
    y = (x[:, :2].sum(1) > 0.8).long() + (x[:, 2] > 0.5).long()
    loader = DataLoader(TensorDataset(x, y), batch_size=30, shuffle=True)
    model = nn.Sequential(nn.Linear(12, 48), nn.LayerNorm(48), nn.ReLU(), nn.Linear(48, 3))
    optimizer = Momentum(model.parameters())
    for epoch in range(8):
        for features, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(features), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
