"""Softmax regression without any optimizer: weights updated under `no_grad`, gradients cleared by hand."""

import torch
import torch.nn.functional as F

torch.manual_seed(30)
torch.set_num_threads(1)
x = torch.randn(2000, 15)
y = (x @ torch.randn(15, 5)).argmax(1)
w = (0.01 * torch.randn(15, 5)).requires_grad_()
b = torch.zeros(5, requires_grad=True)
for step in range(500):
    index = torch.randint(0, 2000, (50,))
    loss = F.cross_entropy(x[index] @ w + b, y[index])
    loss.backward()
    with torch.no_grad():
        for p in (w, b):
            p -= 0.3 * p.grad
            p.grad.zero_()
    if step % 100 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
