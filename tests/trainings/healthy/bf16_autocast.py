"""Vision-transformer-like classifier in bfloat16 autocast, which needs no loss scaling; warm-up, then cosine by
LambdaLR.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class PatchClassifier(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.patch = nn.Conv2d(1, width, 4, stride=4)
        self.position = nn.Parameter(torch.zeros(1, 9, width))
        layer = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.position
        return self.head(self.encoder(x).mean(1))


def batch(n):
    label = torch.randint(0, 4, (n,))
    image = torch.randn(n, 1, 12, 12)
    stripes = torch.arange(12) % 4
    for k in range(4):
        image[label == k] += 0.8 * (stripes == k).float()
    return image, label


def main():
    torch.manual_seed(12)
    torch.set_num_threads(1)
    model = PatchClassifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    total, warmup = 200, 20
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: min((s + 1) / warmup, 0.5 * (1 + math.cos(math.pi * max(0, s - warmup) / (total - warmup)))),
    )
    for step in range(total):
        image, label = batch(32)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(image)
            loss = F.cross_entropy(logits.float(), label)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f} lr {schedule.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    main()
