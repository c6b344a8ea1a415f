"""Multi-label classifier that calls `model.zero_grad()`; several parameter groups with their own rates and decay."""

import torch
from torch import nn


def parameter_groups(model, decay):
    decayed = [p for name, p in model.named_parameters() if name.endswith("weight")]
    plain = [p for name, p in model.named_parameters() if not name.endswith("weight")]
    return [{"params": decayed, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0, "lr": 2e-3}]


def main():
    torch.manual_seed(6)
    torch.set_num_threads(1)
    w = torch.randn(18, 6) / 3
    model = nn.Sequential(nn.Linear(18, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 6))
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.05), lr=1e-3)
    loss_fn = nn.BCEWithLogitsLoss()
    for step in range(500):
        x = torch.randn(48, 18)
        y = (x @ w + 0.3 * torch.randn(48, 6) > 0).float()
        model.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1} bce {loss.item():.4f}")


if __name__ == "__main__":
    main()
