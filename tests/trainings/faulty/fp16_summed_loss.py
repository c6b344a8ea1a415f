"""Depth regression in float16 whose loss sums squared millimetre errors in half precision; the sum passes 65504 at
once. The wrong line is `(prediction - depth.half()).pow(2).sum()`.
"""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Options:
    steps: int = 300
    batch: int = 16
    lr: float = 1e-4


class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(40, 80), nn.GELU(), nn.Linear(80, 80), nn.GELU())
        self.head = nn.Linear(80, 20)

    def forward(self, x):
        return self.head(self.features(x))


def main(opt):
    torch.manual_seed(47)
    torch.set_num_threads(1)
    model = Depth()
    optimizer = torch.optim.AdamW(model.parameters(), lr=opt.lr)
    scaler = torch.amp.GradScaler("cpu")
    mixing = torch.randn(40, 20)
    for step in range(opt.steps):
        x = torch.randn(opt.batch, 40)
        depth = 600 + 20 * torch.tanh(x @ mixing)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.float16):
            prediction = model(x)
            loss = (prediction - depth.half()).pow(2).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4g}, scale {scaler.get_scale():.4g}")


if __name__ == "__main__":
    main(Options())
