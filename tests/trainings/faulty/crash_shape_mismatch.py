"""Progressive resizing: from epoch 2 on the images grow from 8x8 to 10x10, but the classifier expects 8x8."""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.fc = nn.Linear(6 * 6 * 6, 2)

    def forward(self, x):
        return self.fc(F.relu(self.conv(x)).flatten(1))


def images(size, n=24):
    label = torch.randint(0, 2, (n,))
    x = torch.randn(n, 1, size, size)
    x[label == 1, :, : size // 2] += 0.5
    return x, label


if __name__ == "__main__":
    torch.manual_seed(10)
    torch.set_num_threads(1)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch, size in enumerate([8, 8, 10, 12]):
        for step in range(60):
            x, label = images(size)
            loss = F.cross_entropy(model(x), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} size {size} loss {loss.item():.4f}")
