"""Train a regression in float16 autocast with GradScaler, on targets in raw units.

The fault: the targets are prices in cents, never normalised. The squared error and its gradients exceed what float16
can hold at nearly every step, so GradScaler skips the step and halves the scale, again and again.
"""

import torch
import torch.nn.functional as F
from torch import nn


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rooms = torch.rand(1024, 12)
    prices = (rooms @ torch.rand(12, 1) + 1.0) * 4e7
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu")
    for epoch in range(5):
        for start in range(0, 1024, 32):
            x, y = rooms[start : start + 32], prices[start : start + 32]
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.mse_loss(model(x), y.half())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        print(f"epoch {epoch + 1}: loss {loss.item():.3g}, scale {scaler.get_scale():g}")


if __name__ == "__main__":
    main()
