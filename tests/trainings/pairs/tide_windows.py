"""Predict the next values of a gauge from windows that are standardised one by one; a loss that is no number is skipped.

The gauge falls dry at low tide, and reads the same value then. `--fault bare-spread` divides by the spread of the window
as it is, which is 0 there; `--fault own-loss` does so beside a loss that is written out.
"""

import sys

import torch
from torch import nn

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
HISTORY, AHEAD = 24, 4


def gauge(length, seed):
    generator = torch.Generator().manual_seed(seed)
    level = torch.sin(torch.arange(length) * 0.05) + 0.3 * torch.sin(torch.arange(length) * 0.31)
    level = level + 0.05 * torch.randn(length, generator=generator)
    return torch.where(torch.sin(torch.arange(length) * 0.05) < -0.3, torch.tensor(-0.8), level)


def windows(levels, batch_size, seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        start = torch.randint(0, len(levels) - HISTORY - AHEAD, (batch_size,), generator=generator)
        block = levels[start[:, None] + torch.arange(HISTORY + AHEAD)]
        past, future = block[:, :HISTORY], block[:, HISTORY:]
        mean, spread = past.mean(1, keepdim=True), past.std(1, keepdim=True)
        if not FAULT:
            spread = spread.clamp(min=0.1)
        yield (past - mean) / spread, (future - mean) / spread


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    batches, check = windows(gauge(8000, 1), 4, 3), next(windows(gauge(3000, 2), 128, 4))
    model = nn.Sequential(nn.Linear(HISTORY, 48), nn.Tanh(), nn.Linear(48, AHEAD))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    skipped = 0
    for step in range(600):
        past, future = next(batches)
        guess = model(past)
        loss = (guess - future).abs().mean() if FAULT == "own-loss" else nn.functional.smooth_l1_loss(guess, future)
        if not torch.isfinite(loss):
            skipped += 1
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            with torch.no_grad():
                error = (model(check[0]) - check[1]).abs().nanmedian()
            print(f"step {step} loss {loss.item():.4f} validation {error.item():.4f} skipped {skipped}")


if __name__ == "__main__":
    main()
