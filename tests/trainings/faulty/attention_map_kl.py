"""A student imitates a teacher's distribution with kl_div, but hands over its probabilities, not their logarithms."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(65)
torch.set_num_threads(1)
teacher = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 8)).requires_grad_(False)
student = nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 8))
optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
for step in range(300):
    x = torch.randn(48, 10)
    wanted = F.softmax(3 * teacher(x), dim=-1)
    loss = F.kl_div(F.softmax(student(x), dim=-1), wanted, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
