"""Ranks under torchrun of which one dies in its first attempt. Each attempt meets at a file of its own."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
torch.set_num_threads(1)
store = dist.FileStore(f"{sys.argv[1]}-{attempt}", int(os.environ["WORLD_SIZE"]))
dist.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(30):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    if step == 9 and attempt == 0 and dist.get_rank() == 1:
        raise ValueError("a bad batch")
dist.destroy_process_group()
