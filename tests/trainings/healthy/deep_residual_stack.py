"""As deep as a network whose gradients vanish, with the same sigmoids, but normalised and with shortcuts; then it
goes on for as long again after it has converged, with gradients that are tiny everywhere.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.into = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        return x + self.out(torch.sigmoid(self.into(self.norm(x))))


def main():
    torch.manual_seed(19)
    torch.set_num_threads(1)
    centres = 2.0 * torch.randn(8, 20)
    y = torch.randint(0, 8, (3000,))
    x = centres[y] + torch.randn(3000, 20)
    model = nn.Sequential(nn.Linear(20, 64), *[Block(64) for _ in range(8)], nn.LayerNorm(64), nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(8):
        for xb, yb in DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
