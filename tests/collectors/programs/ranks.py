"""Two-rank training over gloo. Started by torchrun, or, with "spawn" or "fork", by the script itself."""

import multiprocessing
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def train(rank, how=""):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    if dist.is_initialized():
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(30):
        time.sleep(float(os.environ.get("STEP_SECONDS", "0")))
        x = torch.randn(16, 8)
        optimizer.zero_grad()
        F.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
        optimizer.step()
    if how == "raise" and rank == 1:
        raise ValueError("rank one has failed")
    return sum(p.double().sum().item() for p in model.parameters())


if __name__ == "__main__":
    how = sys.argv[1] if len(sys.argv) > 1 else "torchrun"
    if how in ("spawn", "raise"):
        torch.multiprocessing.spawn(train, args=(how,), nprocs=2)
    elif how == "fork":
        children = [multiprocessing.get_context("fork").Process(target=train, args=(rank,)) for rank in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join()
    else:
        dist.init_process_group("gloo")
        line = f"rank {dist.get_rank()} {train(dist.get_rank())}\n"
        os.write(1, line.encode())  # in one write: lines of ranks do not mix
        dist.destroy_process_group()
