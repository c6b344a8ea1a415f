"""Batches of four with heavy-tailed noise: loss and gradient norms jump about, while the mean improves."""

import torch
from torch import nn

torch.manual_seed(22)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(10, 48), nn.Tanh(), nn.Linear(48, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
student = torch.distributions.StudentT(4.0)
average = 0.0
for step in range(1, 1201):
    x = torch.randn(4, 10)
    y = 2 * torch.tanh(x[:, :1] - x[:, 1:2]) + 0.3 * student.sample((4, 1))
    loss = nn.functional.huber_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average += loss.item() / 200
    if step % 200 == 0:
        print(f"steps {step - 199}-{step}: mean loss {average:.4f}")
        average = 0.0
