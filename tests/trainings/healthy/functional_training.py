"""Functional style: parameters in a dict, `torch.func.grad_and_value` and `functional_call`, update by hand."""

import torch
from torch import nn
from torch.func import functional_call, grad_and_value

torch.manual_seed(31)
torch.set_num_threads(1)
module = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
params = {name: p.detach().clone() for name, p in module.named_parameters()}
velocity = {name: torch.zeros_like(p) for name, p in params.items()}


def objective(params, x, y):
    return nn.functional.mse_loss(functional_call(module, params, (x,)), y)


for step in range(400):
    x = torch.randn(64, 4)
    y = torch.sin(x[:, :1]) * x[:, 1:2]
    gradients, loss = grad_and_value(objective)(params, x, y)
    for name in params:
        velocity[name] = 0.9 * velocity[name] - 0.05 * gradients[name]
        params[name] = params[name] + velocity[name]
    if step % 80 == 0:
        print(f"step {step} loss {loss.item():.4f}")
