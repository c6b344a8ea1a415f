"""Train and evaluate a model on the meta device, whose losses have no values, and then one that is really there."""

import torch
from torch import nn

for device in ("meta", "cpu"):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 2)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(130):
        x = torch.randn(8, 4).to(device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x[:, :2])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 40 == 39:
            model.eval()
            with torch.no_grad():
                nn.functional.mse_loss(model(x), x[:, :2])
            model.train()
print(loss.item())
