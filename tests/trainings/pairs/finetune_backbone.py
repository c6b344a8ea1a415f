"""Fine-tune a head on a frozen convolutional backbone whose BatchNorm stays in eval mode.

Faults: `no-grad-forward` wraps the whole forward pass in `no_grad` and leaves only a bias outside;
`frozen-head` freezes the head as well and trains with a loss that is made to require gradients.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16)
        self.conv2, self.bn2 = nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x))).flatten(1)


def pretrained(images):
    """Weights and statistics of a backbone that has seen images."""
    backbone = Backbone()
    with torch.no_grad():
        for part in images.split(100):
            backbone(part)
    return backbone.state_dict()


class Classifier(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.backbone, self.head, self.fault = Backbone(), nn.Linear(288, 3), fault

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        if self.fault == "no-grad-forward":
            with torch.no_grad():
                logits = self.head(self.backbone(x))
            return logits.requires_grad_()
        return self.head(self.backbone(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(13)
    torch.set_num_threads(1)
    labels = torch.randint(0, 3, (1500,))
    images = torch.randn(1500, 1, 12, 12)
    for k in range(3):
        images[labels == k, 0, 3 * k : 3 * k + 4] += 0.45
    train_set, val_set = random_split(TensorDataset(images, labels), [1200, 300])
    train_loader = DataLoader(train_set, batch_size=24, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=100)
    model = Classifier(args.fault)
    model.backbone.load_state_dict(pretrained(images))
    for p in model.backbone.parameters():
        p.requires_grad = False
    if args.fault == "frozen-head":
        for p in model.head.parameters():
            p.requires_grad = False
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=3e-3)
    for epoch in range(4):
        model.train()
        for images, labels in train_loader:
            loss = F.cross_entropy(model(images), labels)
            if args.fault == "frozen-head":
                loss.requires_grad_()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            hits = sum((model(x).argmax(1) == y).sum().item() for x, y in val_loader)
        print(f"epoch {epoch}: loss {loss.item():.4f}, val acc {hits / len(val_set):.3f}")


if __name__ == "__main__":
    main()
