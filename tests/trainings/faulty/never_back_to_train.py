"""Training with dropout and periodic validation; after the first `model.eval()` nothing calls `model.train()` again."""

import torch
from torch import nn


def evaluate(model, data):
    x, y = data
    model.eval()
    with torch.no_grad():
        return nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y).item()


def main():
    torch.manual_seed(61)
    torch.set_num_threads(1)
    w = torch.randn(25)

    def draw(n):
        x = torch.randn(n, 25)
        return x, (torch.sigmoid(3 * x @ w / 5) > torch.rand(n)).float()

    val = draw(1000)
    model = nn.Sequential(
        nn.Linear(25, 100), nn.ReLU(), nn.Dropout(0.5), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 1)
    )
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)
    for step in range(500):
        x, y = draw(64)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1} train {loss.item():.4f} val {evaluate(model, val):.4f}")


if __name__ == "__main__":
    main()
