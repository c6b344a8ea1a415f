"""Classify noisy rings with Adagrad. The gradients are cleared once before the loop and never in it:
`optimizer.zero_grad()` stands above the `for` where it belongs inside.
"""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

radius = 1 + torch.randint(0, 3, (3000,)).float()
phi = torch.rand(3000) * 6.2832
points = torch.stack([radius * phi.cos(), radius * phi.sin()], 1) + 0.15 * torch.randn(3000, 2)
rings = radius.long() - 1

w1 = torch.nn.Parameter(torch.randn(2, 40) * 0.7)
b1 = torch.nn.Parameter(torch.zeros(40))
w2 = torch.nn.Parameter(torch.randn(40, 3) * 0.2)
b2 = torch.nn.Parameter(torch.zeros(3))


def predict(x):
    return torch.tanh(x @ w1 + b1) @ w2 + b2


optimizer = torch.optim.Adagrad([w1, b1, w2, b2], lr=0.05)
optimizer.zero_grad()
for it in range(600):
    batch = torch.randint(0, 3000, (64,))
    loss = F.cross_entropy(predict(points[batch]), rings[batch])
    loss.backward()
    optimizer.step()
    if it % 100 == 99:
        accuracy = (predict(points).argmax(1) == rings).float().mean()
        print(f"it {it + 1} loss {loss.item():.4f} acc {accuracy.item():.3f}")
