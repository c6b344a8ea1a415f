"""Ten fully connected layers grade samples of ore; their weights are drawn for the ReLUs between them.

Fault `small-weights` draws them as a transformer draws its own, though nothing here keeps the size of a signal. The
wrong line is `p.data.normal_(0.0, 0.02)`.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MEASURED, WIDTH, GRADES, DEPTH = 12, 64, 6, 10


class Grader(nn.Module):
    def __init__(self, small):
        super().__init__()
        sizes = [MEASURED] + [WIDTH] * (DEPTH - 1)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.grade = nn.Linear(WIDTH, GRADES)
        for p in self.parameters():
            if p.dim() < 2:
                nn.init.zeros_(p)
            elif small:
                p.data.normal_(0.0, 0.02)
            else:
                nn.init.kaiming_normal_(p, nonlinearity="relu")

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.grade(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "small-weights"])
    args = parser.parse_args()
    torch.manual_seed(23)
    torch.set_num_threads(1)
    centres = 1.5 * torch.randn(GRADES, MEASURED)
    y = torch.randint(0, GRADES, (2400,))
    x = centres[y] + torch.randn(2400, MEASURED)
    model = Grader(small=args.fault == "small-weights")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(8):
        for xb, yb in DataLoader(TensorDataset(x, y), batch_size=48, shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
