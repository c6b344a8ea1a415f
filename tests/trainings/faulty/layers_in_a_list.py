"""A network whose hidden layers sit in a plain Python list: `model.parameters()` does not know them, so only the
last layer learns. `self.hidden = [...]` should be an `nn.ModuleList`.
"""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.hidden = [nn.Linear(2, width), nn.Linear(width, width)]
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return self.out(x)


torch.manual_seed(87)
torch.set_num_threads(1)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(500):
    x = torch.rand(64, 2) * 4 - 2
    y = torch.sin(2 * x[:, :1]) * x[:, 1:]
    loss = (model(x) - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
