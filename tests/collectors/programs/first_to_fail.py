"""Two ranks over gloo, one of which fails: the other one loses its connection, or is asked to end."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

how = sys.argv[1]
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    if step == 6 and rank == 1:
        if how == "kill":
            time.sleep(1.0)  # what was recorded is on disk
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("sample 1234 has a negative label" + " and so on" * 20)
    if step == 6 and how == "sleep":
        time.sleep(60)
    optimizer.zero_grad()
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
