"""Train a small language model on random walks, and keep every loss for a plot at the end.

The fault: the list keeps the losses themselves, not their values. Each holds on to the autograd graph of its step, and
the outputs kept for a later look hold on to their memory: the process grows with every step.
"""

import torch
import torch.nn.functional as F
from torch import nn


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Embedding(64, 48), nn.GRU(48, 96, batch_first=True))
    head = nn.Linear(96, 64)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=2e-3)
    history, outputs = [], []
    for _ in range(300):
        walk = (torch.randint(0, 64, (16, 1)) + torch.randint(-1, 2, (16, 33)).cumsum(1)) % 64
        states, _ = model(walk[:, :-1])
        logits = head(states)
        loss = F.cross_entropy(logits.flatten(0, 1), walk[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss)
        outputs.append(logits)
    print(f"loss {history[0].item():.3f} -> {history[-1].item():.3f}")


if __name__ == "__main__":
    main()
