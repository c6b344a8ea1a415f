"""Float16 with a scaler that starts at 2**24: the first steps overflow and are skipped, then training is steady."""

import torch
from torch import nn


def main():
    torch.manual_seed(10)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(25, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=200)
    skipped = 0
    for step in range(600):
        x = torch.randn(64, 25)
        y = 20 * torch.tanh(x[:, :1] + x[:, 1:2])
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f} scale {scaler.get_scale():g} skipped {skipped}")


if __name__ == "__main__":
    main()
