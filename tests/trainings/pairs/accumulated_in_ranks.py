"""Two ranks accumulate over four micro-batches under DistributedDataParallel, and average in one backward of the four.

`--fault first`: in the first one, so that what the other three add stays on its rank. Else in the last one.
"""

import contextlib
import os
import socket
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
AVERAGED = 0 if FAULT == "first" else 3
KEPT = []  # to the end of the process: torch 2.13 may hang where the model is destroyed


def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    inputs = torch.randn(1600, 8)
    targets = inputs[:, :2].prod(1, keepdim=True) + 0.1 * torch.randn(1600, 1)
    sampler = DistributedSampler(TensorDataset(inputs, targets), seed=1)
    loader = DataLoader(sampler.dataset, batch_size=10, sampler=sampler, drop_last=True)
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1)))
    KEPT.append(ddp)
    optimizer = torch.optim.Adam(ddp.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    for epoch in range(6):
        sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            with contextlib.nullcontext() if number % 4 == AVERAGED else ddp.no_sync():
                loss = (ddp(x) - y).square().mean()
                (loss / 4).backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.start_processes(train, (port,), nprocs=2, start_method="fork")
