"""LSTM without clipping; after 200 good steps the configuration's second stage sets a rate of 30, and gradients
explode.
"""

import torch
import torch.nn.functional as F
from torch import nn

STAGES = [(0, 0.3), (200, 30.0)]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 32, batch_first=True)
        self.fc = nn.Linear(32, 1)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(out[:, -1])


if __name__ == "__main__":
    torch.manual_seed(79)
    torch.set_num_threads(1)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(350):
        for start, lr in STAGES:
            if step == start:
                optimizer.param_groups[0]["lr"] = lr
        x = torch.randn(32, 15, 3)
        y = x[:, -5:, 0].sum(1, keepdim=True)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == 205:
            print(f"{step:4d} {loss.item():.4g}")
