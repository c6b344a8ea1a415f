"""Sharpness-aware minimisation: each step goes uphill first, takes the gradients there, comes back, and steps."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SharpnessAware:
    """Around an optimizer: `ascend` after the first backward, `descend` after the second one."""

    def __init__(self, optimizer, radius):
        self.optimizer, self.radius = optimizer, radius
        self.moved = {}

    def parameters(self):
        return [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]

    @torch.no_grad()
    def ascend(self):
        norm = torch.stack([p.grad.norm() for p in self.parameters()]).norm()
        self.moved = {p: self.radius * p.grad / (norm + 1e-12) for p in self.parameters()}
        for p, way in self.moved.items():
            p.add_(way)
        self.optimizer.zero_grad()

    @torch.no_grad()
    def descend(self):
        for p, way in self.moved.items():
            p.sub_(way)
        self.optimizer.step()
        self.optimizer.zero_grad()


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    x = torch.randn(3000, 16)
    y = (x[:, :4].sum(1) + 0.5 * torch.randn(3000) > 0).long()
    model = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 2))
    aware = SharpnessAware(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), radius=0.05)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(5):
        for xb, yb in DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True):
            loss = criterion(model(xb), yb)
            loss.backward()
            aware.ascend()
            criterion(model(xb), yb).backward()
            aware.descend()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
