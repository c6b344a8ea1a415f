"""Polynomial regression with hand-written gradient descent. The loop updates the weights by hand and forgets
`weights.grad.zero_()` afterwards.
"""

import torch

torch.manual_seed(4)
torch.set_num_threads(1)
x = torch.linspace(-1, 1, 400)
y = torch.sin(3 * x) + 0.1 * torch.randn(400)
powers = torch.stack([x**k for k in range(6)], dim=1)
weights = torch.zeros(6, requires_grad=True)
learning_rate = 0.02

for step in range(400):
    loss = (powers @ weights - y).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        weights -= learning_rate * weights.grad
    if step % 50 == 0:
        print(step, round(loss.item(), 5))
