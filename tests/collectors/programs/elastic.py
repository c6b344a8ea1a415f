"""Ranks under torchrun of which one dies in its first attempt. Each attempt meets at a file of its own.

They average gradients and update by hand: DDP and optimizers import torch._dynamo, which takes each rank two seconds.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
torch.set_num_threads(1)
store = dist.FileStore(f"{sys.argv[1]}-{attempt}", int(os.environ["WORLD_SIZE"]))
dist.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
model = nn.Linear(4, 2)
for step in range(30):
    model(torch.randn(8, 4)).square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter -= 0.005 * parameter.grad
            parameter.grad = None
    if step == 9 and attempt == 0 and dist.get_rank() == 1:
        raise ValueError("a bad batch")
dist.destroy_process_group()
