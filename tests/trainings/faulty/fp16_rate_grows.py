"""Float16 training under a rate schedule with a slipped sign: `gamma=1.06` grows the rate until activations
overflow.
"""

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


def main():
    torch.manual_seed(45)
    torch.set_num_threads(1)
    w = torch.randn(24)
    model = nn.Sequential(nn.Linear(24, 64), Residual(64), Residual(64), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=1.06)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for step in range(300):
        x = torch.randn(64, 24)
        target = torch.tanh(x @ w).unsqueeze(1)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.mse_loss(model(x).float(), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        if step % 30 == 0:
            print(
                f"step {step} loss {loss.item():.4g} lr {schedule.get_last_lr()[0]:.3g} scale {scaler.get_scale():.3g}"
            )


if __name__ == "__main__":
    main()
