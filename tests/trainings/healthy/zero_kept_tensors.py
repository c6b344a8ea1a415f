"""Matrix factorisation; gradients are set to zero instead of None (`set_to_none=False`), after the step."""

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
truth = torch.randn(80, 5) @ torch.randn(5, 60) / 2
left, right = nn.Parameter(torch.randn(80, 8) * 0.3), nn.Parameter(torch.randn(8, 60) * 0.3)
optimizer = torch.optim.Adam([left, right], lr=0.02)
for step in range(600):
    rows, columns = torch.randint(0, 80, (256,)), torch.randint(0, 60, (256,))
    estimate = (left[rows] * right[:, columns].T).sum(1)
    loss = (estimate - truth[rows, columns]).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    if step % 100 == 0:
        print(f"{step:4d} {loss.item():.5f}")
