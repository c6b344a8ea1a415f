"""Train a small convolutional network through a Trainer class with callbacks; validation after every epoch.

Faults: `missing-zero-grad` never clears gradients; `eval-in-train-mode` validates without `model.eval()`;
`train-in-eval-mode` does not go back to `model.train()`; `train-inside-validation` switches to train mode in the
validation loop.
"""

import argparse
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Callback:
    def on_epoch_end(self, trainer, epoch, logs):
        pass


class History(Callback):
    def __init__(self):
        self.rows = []

    def on_epoch_end(self, trainer, epoch, logs):
        self.rows.append(dict(logs, epoch=epoch))


class Printer(Callback):
    def on_epoch_end(self, trainer, epoch, logs):
        print(f"[{epoch:02d}] " + "  ".join(f"{name}={value:.4f}" for name, value in logs.items()))


@dataclass
class Trainer:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    fault: str = ""
    callbacks: list = field(default_factory=list)

    def training_step(self, batch):
        images, labels = batch
        return F.cross_entropy(self.model(images), labels)

    def train_epoch(self, loader):
        if self.fault != "train-in-eval-mode":
            self.model.train()
        losses = []
        for batch in loader:
            if self.fault != "missing-zero-grad":
                self.optimizer.zero_grad()
            loss = self.training_step(batch)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    @torch.no_grad()
    def validate(self, loader):
        if self.fault != "eval-in-train-mode":
            self.model.eval()
        loss, correct, seen = 0.0, 0, 0
        for images, labels in loader:
            if self.fault == "train-inside-validation":
                self.model.train()
            logits = self.model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            correct += (logits.argmax(1) == labels).sum().item()
            seen += len(labels)
        return loss / seen, correct / seen

    def fit(self, train_loader, val_loader, epochs):
        for epoch in range(epochs):
            logs = {"loss": self.train_epoch(train_loader)}
            logs["val_loss"], logs["val_acc"] = self.validate(val_loader)
            for callback in self.callbacks:
                callback.on_epoch_end(self, epoch, logs)


def make_images(n, generator):
    labels = torch.randint(0, 4, (n,), generator=generator)
    images = 1.0 * torch.randn(n, 1, 12, 12, generator=generator)
    for k, (row, col) in enumerate([(1, 1), (1, 6), (6, 1), (6, 6)]):
        images[labels == k, :, row : row + 4, col : col + 4] += 0.6
    return TensorDataset(images, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(7)
    train_loader = DataLoader(make_images(1600, generator), batch_size=32, shuffle=True, drop_last=True)
    val_loader = DataLoader(make_images(400, generator), batch_size=64)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64, 4),
    )
    if args.fault == "train-in-eval-mode":
        model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    trainer = Trainer(model, optimizer, fault=args.fault, callbacks=[History(), Printer()])
    trainer.fit(train_loader, val_loader, args.epochs)


if __name__ == "__main__":
    main()
