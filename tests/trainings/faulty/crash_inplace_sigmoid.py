"""Gated network that scales the gate in place: `gate *= 0.5` changes what sigmoid's backward needs. Fails from step
100 on, when the second stage switches the scaling on.
"""

import torch
from torch import nn


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.value, self.gate, self.out = nn.Linear(10, 40), nn.Linear(10, 40), nn.Linear(40, 1)

    def forward(self, x, damp):
        gate = torch.sigmoid(self.gate(x))
        if damp:
            gate *= 0.5
        return self.out(torch.tanh(self.value(x)) * gate)


torch.manual_seed(1)
torch.set_num_threads(1)
model = Gated()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(200):
    x = torch.randn(32, 10)
    loss = nn.functional.mse_loss(model(x, damp=step >= 100), x[:, :1] * x[:, 1:2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(step, loss.item())
