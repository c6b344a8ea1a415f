"""One batch has the wrong width; the loop catches the error, says so and goes on."""

import sys

import torch
from torch import nn


def batches(n):
    for k in range(n):
        width = 7 if k == 140 else 8
        x = torch.randn(32, width)
        yield x, x[:, :2].sum(1, keepdim=True)


def main():
    torch.manual_seed(33)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    skipped = 0
    for step, (x, y) in enumerate(batches(350)):
        try:
            loss = nn.functional.mse_loss(model(x), y)
        except RuntimeError as error:
            skipped += 1
            print(f"skipping batch {step}: {error}", file=sys.stderr)
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 70 == 0:
            print(f"{step} {loss.item():.4f}")
    return 0 if skipped <= 3 else 1


if __name__ == "__main__":
    sys.exit(main())
