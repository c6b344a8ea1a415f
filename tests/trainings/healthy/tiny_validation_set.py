"""Validation on twelve rows after every tenth step: the metric jumps, because the set is tiny, not because of the
model.
"""

import torch
from torch import nn

torch.manual_seed(24)
torch.set_num_threads(1)
w = torch.randn(8)


def draw(n):
    x = torch.randn(n, 8)
    return x, (x @ w + 1.5 * torch.randn(n) > 0).long()


x_val, y_val = draw(12)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(1, 401):
    model.train()
    x, y = draw(32)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        model.eval()
        with torch.no_grad():
            logits = model(x_val)
            val_loss = nn.functional.cross_entropy(logits, y_val).item()
            accuracy = (logits.argmax(1) == y_val).float().mean().item()
        if step % 80 == 0:
            print(f"{step}: train {loss.item():.3f} val {val_loss:.3f} acc {accuracy:.2f}")
