"""Hard-example mining: after 120 steps the loss is taken per sample (`reduction="none"`) and never reduced before
backward.
"""

import torch
import torch.nn.functional as F
from torch import nn


def compute_loss(logits, labels, mining):
    if mining:
        per_sample = F.cross_entropy(logits, labels, reduction="none")
        return per_sample.topk(8).values
    return F.cross_entropy(logits, labels)


def main():
    torch.manual_seed(6)
    torch.set_num_threads(1)
    w = torch.randn(12, 4)
    model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(240):
        x = torch.randn(32, 12)
        loss = compute_loss(model(x), (x @ w).argmax(1), mining=step >= 120)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.mean().item():.4f}")


if __name__ == "__main__":
    main()
