"""Weights in bfloat16, but the optimizer keeps float32 copies of them and rounds those after every step: updates too
small for bfloat16 add up in the copies.
"""

import torch
from torch import nn


class MasterSGD(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
        self.masters = [[p.detach().float().clone() for p in group["params"]] for group in self.param_groups]

    @torch.no_grad()
    def step(self, closure=None):
        for group, masters in zip(self.param_groups, self.masters):
            for p, master in zip(group["params"], masters):
                master.sub_(p.grad.float(), alpha=group["lr"])
                p.copy_(master)


torch.manual_seed(72)
torch.set_num_threads(1)
network = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 1)).to(torch.bfloat16)
optimizer = MasterSGD(network.parameters(), lr=0.01)
features = torch.randn(2000, 24)
target = features[:, :3].sum(1, keepdim=True) + 0.1 * torch.randn(2000, 1)
for step in range(600):
    rows = torch.randint(0, len(features), (32,))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(network(features[rows].to(torch.bfloat16)).float(), target[rows])
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step}: {loss.item():.4f}")
