"""Train a small CNN with much dropout on few images, and validate it after every epoch.

The fault: `accuracy` never switches the model to eval mode, so dropout is active while it is judged.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def draw_shapes(samples, size=16):
    """Images [samples, 1, size, size] of one shape each at a random place, with noise, and which shape it is."""
    ys, xs = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    labels = torch.randint(0, 3, (samples,))
    images = torch.randn(samples, 1, size, size) * 0.15
    for index, label in enumerate(labels):
        cy, cx = torch.randint(5, size - 5, (2,))
        dy, dx = (ys - cy).abs(), (xs - cx).abs()
        shape = ((dy**2 + dx**2).float().sqrt() - 4).abs() < 0.8, torch.maximum(dy, dx) == 4, (dy == dx) & (dy < 5)
        images[index, 0][shape[label]] += 1.0
    return images, labels


class ShapeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 24, 3, padding=1), nn.ReLU()
        )
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(24 * 16, 3)

    def forward(self, images):
        maps = F.max_pool2d(self.features(images), 2)
        return self.head(self.drop(maps.flatten(1)))


def accuracy(model, loader):
    right = total = 0
    with torch.no_grad():
        for images, labels in loader:
            right += (model(images).argmax(1) == labels).sum().item()
            total += len(labels)
    return right / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.05)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    train = DataLoader(TensorDataset(*draw_shapes(960)), batch_size=32, shuffle=True)
    valid = DataLoader(TensorDataset(*draw_shapes(192)), batch_size=64)
    model = ShapeNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)

    for epoch in range(arguments.epochs):
        model.train()
        for images, labels in train:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: last loss {loss.item():.3f}, accuracy {accuracy(model, valid):.1%}")


if __name__ == "__main__":
    main()
