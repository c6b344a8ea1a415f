"""A training with a guard that raises when the loss is not finite; the rate of 12 makes it so."""

import math

import torch
from torch import nn


class TrainingDiverged(RuntimeError):
    pass


def main():
    torch.manual_seed(73)
    torch.set_num_threads(1)
    x = torch.randn(2000, 10)
    y = torch.cos(x[:, :3]).sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(400):
        if step == 150:
            for group in optimizer.param_groups:
                group["lr"] = 12.0
        pick = torch.randint(0, 2000, (64,))
        loss = nn.functional.mse_loss(model(x[pick]), y[pick])
        if not math.isfinite(loss.item()):
            raise TrainingDiverged(f"loss is {loss.item()} at step {step}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
