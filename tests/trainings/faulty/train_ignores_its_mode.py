"""A convolutional net whose stem is frozen: its own `train()` keeps the stem in eval mode, but hands no mode on, so that
`eval()` puts the rest into train mode."""

import torch
import torch.nn.functional as F
from torch import nn


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(1, 8, 5, padding=2), nn.ReLU(), nn.Dropout(0.2))
        self.body = nn.Sequential(nn.Conv1d(8, 16, 3), nn.BatchNorm1d(16), nn.ReLU(), nn.Flatten(), nn.Dropout(0.4))
        self.head = nn.Linear(16 * 18, 3)
        self.stem.requires_grad_(False)

    def train(self, mode=True):
        super().train()
        self.stem.eval()
        return self

    def forward(self, x):
        return self.head(self.body(self.stem(x)))


def waves(count):
    kinds = torch.randint(0, 3, (count,))
    time = torch.linspace(0, 6.28, 20)
    return (torch.sin((kinds[:, None] + 1) * time) + 0.8 * torch.randn(count, 20)).unsqueeze(1), kinds


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    (x, y), (held_x, held_y) = waves(1200), waves(300)
    net = Frozen()
    optimizer = torch.optim.Adam([one for one in net.parameters() if one.requires_grad], lr=1e-3)
    for epoch in range(6):
        net.train()
        for rows in torch.randperm(len(x)).split(40):
            loss = F.cross_entropy(net(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            held = sum(
                F.cross_entropy(net(a), b).item() for a, b in zip(held_x.split(50), held_y.split(50), strict=True)
            )
        print(f"epoch {epoch}: held out {held / 6:.4f}")


if __name__ == "__main__":
    main()
