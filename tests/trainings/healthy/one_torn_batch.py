"""Learn to add noisy numbers; at one step the whole batch is torn from its scale, and its gradient is as large."""

import torch
from torch import nn


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(4)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(900):
        numbers = torch.randn(64, 12, generator=generator) * (40 if step == 600 else 1)
        sums = numbers.sum(1, keepdim=True) + 0.3 * torch.randn(64, 1, generator=generator)
        loss = nn.functional.huber_loss(model(numbers), sums)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
