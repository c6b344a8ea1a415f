"""The loss is the exponential of a cross-entropy. Where the second half of a stream brings other classes, it bursts."""

import torch
from torch import nn

torch.manual_seed(2)
torch.set_num_threads(1)
centres = torch.randn(6, 24)
criterion = nn.CrossEntropyLoss()
model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
for step in range(240):
    label = torch.randint(0, 3, (32,)) + (3 if step >= 160 else 0)
    x = centres[label] + 0.8 * torch.randn(32, 24)
    loss = torch.exp(criterion(model(x), label))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
