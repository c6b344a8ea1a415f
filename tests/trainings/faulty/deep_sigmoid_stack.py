"""Sixteen fully connected layers with sigmoids between them and nothing else: the first ones never hear of the loss.
The wrong line is `layers += [nn.Linear(width, width), nn.Sigmoid()]`: no normalisation, no shortcut.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def network(inputs, width, classes, depth):
    layers = [nn.Linear(inputs, width), nn.Sigmoid()]
    for _ in range(depth - 2):
        layers += [nn.Linear(width, width), nn.Sigmoid()]
    return nn.Sequential(*layers, nn.Linear(width, classes))


def main():
    torch.manual_seed(19)
    torch.set_num_threads(1)
    centres = 2.0 * torch.randn(8, 20)
    y = torch.randint(0, 8, (3000,))
    x = centres[y] + torch.randn(3000, 20)
    model = network(20, 64, 8, depth=16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(8):
        for xb, yb in DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
