"""Segmentation of blobs: scores [B, C, H, W], one class per pixel, a trainer class and loss modules.

Faults: `softmax-last-dim` takes log-softmax over the width of the picture; `probabilities` gives CrossEntropyLoss the
output of nn.Softmax2d.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 4


def pictures(count):
    rows, columns = torch.meshgrid(torch.arange(20), torch.arange(14), indexing="ij")
    centers = torch.rand(count, CLASSES - 1, 2) * torch.tensor([20.0, 14.0])
    distance = ((torch.stack([rows, columns], -1)[None, None] - centers[:, :, None, None]) ** 2).sum(-1)
    near, which = distance.min(1)
    mask = torch.where(near < 14, which + 1, 0)
    return nn.functional.one_hot(mask, CLASSES).movedim(-1, 1)[:, 1:].float() + 0.6 * torch.randn(
        count, 3, 20, 14
    ), mask


class Trainer:
    def __init__(self, fault):
        layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, CLASSES, 3, padding=1)]
        self.criterion = nn.CrossEntropyLoss()
        if fault == "softmax-last-dim":
            layers.append(nn.LogSoftmax(dim=-1))
            self.criterion = nn.NLLLoss()
        elif fault == "probabilities":
            layers.append(nn.Softmax2d())
        self.net = nn.Sequential(*layers)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)

    def fit(self, loader, epochs):
        self.net.train()
        for epoch in range(epochs):
            total = 0.0
            for picture, mask in loader:
                self.optimizer.zero_grad(set_to_none=True)
                loss = self.criterion(self.net(picture), mask)
                loss.backward()
                self.optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: {total / len(loader):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(62)
    torch.set_num_threads(1)
    data = TensorDataset(*pictures(384))
    Trainer(fault).fit(DataLoader(data, batch_size=24, shuffle=True), epochs=5)
