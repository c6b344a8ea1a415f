"""A small convolutional classifier of noisy glyphs, with log-probabilities and nll_loss.

Faults: `softmax-output` ends the model in softmax although the loss is cross-entropy; `nll-of-softmax` gives nll_loss
probabilities; `softmax-over-batch` normalises over the samples of a batch instead of the classes.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self, classes, fault):
        super().__init__()
        self.fault = fault
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU()
        )
        self.head = nn.Linear(16 * 16, classes)

    def forward(self, images):
        scores = self.head(self.features(images).flatten(1))
        if self.fault in ("softmax-output", "nll-of-softmax"):
            return F.softmax(scores, dim=1)
        if self.fault == "softmax-over-batch":
            return F.log_softmax(scores, dim=0)
        return F.log_softmax(scores, dim=1)


def loss_of(model, images, labels, fault):
    output = model(images)
    if fault == "softmax-output":
        return F.cross_entropy(output, labels)
    return F.nll_loss(output, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(61)
    torch.set_num_threads(1)
    glyphs = torch.randn(6, 1, 8, 8)
    labels = torch.randint(0, 6, (1280,))
    images = glyphs[labels] + 0.7 * torch.randn(1280, 1, 8, 8)
    model = Classifier(6, args.fault)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        order = torch.randperm(1024)
        model.train()
        for rows in order.split(32):
            loss = loss_of(model, images[rows], labels[rows], args.fault)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            validation = loss_of(model, images[1024:], labels[1024:], args.fault)
        print(f"epoch {epoch} loss {loss.item():.4f} validation {validation.item():.4f}")


if __name__ == "__main__":
    main()
