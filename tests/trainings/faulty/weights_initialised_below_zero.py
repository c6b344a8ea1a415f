"""Pixel counts are never negative, and neither is what a ReLU puts out: with weights that are all below zero, no hidden
unit ever fires, and the last bias learns how frequent the classes are. The wrong line is `nn.init.uniform_(...)`.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self, inputs, width, classes):
        super().__init__()
        self.into = nn.Linear(inputs, width)
        self.relu = nn.ReLU()
        self.out = nn.Linear(width, classes)
        bound = inputs**-0.5
        nn.init.uniform_(self.into.weight, -bound, 0.0)
        nn.init.zeros_(self.into.bias)

    def forward(self, x):
        return self.out(self.relu(self.into(x)))


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    centres = 3.0 * torch.rand(6, 30)
    y = torch.randint(0, 6, (3000,))
    x = torch.poisson(centres[y])
    model = Classifier(30, 64, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(8):
        for xb, yb in DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
