"""Hand-written gradient descent under an optimizer for the bias: `weight = weight - ...` makes a new tensor, whose
`.grad` is None in the next step.
"""

import torch

torch.manual_seed(5)
torch.set_num_threads(1)
x = torch.randn(500, 3)
y = x @ torch.tensor([1.0, -2.0, 0.5]) + 0.3
weight = torch.zeros(3, requires_grad=True)
bias = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([bias], lr=0.1)
for step in range(100):
    loss = (x @ weight + bias - y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    weight = weight - 0.1 * weight.grad
    optimizer.step()
    print(step, loss.item())
