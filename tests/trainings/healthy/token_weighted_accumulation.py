"""Accumulation normalised by tokens: each micro-batch's summed loss is divided by the tokens of the whole window."""

import torch
import torch.nn.functional as F
from torch import nn


def micro_batch():
    lengths = torch.randint(4, 13, (12,))
    tokens = torch.randint(0, 15, (12, 12))
    targets = (tokens * 2 + 1) % 15
    targets[torch.arange(12)[None] >= lengths[:, None]] = -100
    return tokens, targets


def main():
    torch.manual_seed(41)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Embedding(15, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 15))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(200):
        window = [micro_batch() for _ in range(4)]
        count = sum((targets != -100).sum() for _, targets in window)
        total = 0.0
        for tokens, targets in window:
            summed = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), reduction="sum")
            (summed / count).backward()
            total += summed.item() / count.item()
        optimizer.step()
        optimizer.zero_grad()
        if step % 40 == 0:
            print(f"step {step}: loss per token {total:.4f}")


if __name__ == "__main__":
    main()
