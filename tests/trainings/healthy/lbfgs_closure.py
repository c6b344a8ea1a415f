"""Gaussian-process-like kernel ridge fit by L-BFGS with strong-Wolfe line search."""

import torch
from torch import nn


class Kernel(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(1.0))
        self.log_noise = nn.Parameter(torch.tensor(0.0))
        self.log_variance = nn.Parameter(torch.tensor(0.0))

    def forward(self, x, y):
        gram = torch.exp(self.log_variance - 0.5 * torch.cdist(x, x).pow(2) / torch.exp(2 * self.log_scale))
        chol = torch.linalg.cholesky(gram + torch.exp(self.log_noise) * torch.eye(len(x)))
        alpha = torch.cholesky_solve(y.unsqueeze(1), chol).squeeze(1)
        return (0.5 * y @ alpha + chol.diagonal().log().sum()) / len(x)


torch.manual_seed(9)
torch.set_num_threads(1)
x = torch.rand(100, 1) * 6
y = torch.sin(2 * x[:, 0]) + 0.2 * torch.randn(100)
kernel = Kernel()
optimizer = torch.optim.LBFGS(kernel.parameters(), lr=0.3, max_iter=5, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = kernel(x, y)
    loss.backward()
    return loss


for i in range(60):
    value = optimizer.step(closure)
    if i % 10 == 0:
        print(f"{i} negative log likelihood {value.item():.4f}")
