"""Two ranks under DistributedDataParallel, with the data divided between them.

`--fault no-sampler`: the loaders know nothing of each other. `--fault no-set-epoch`: nobody tells the sampler the epoch.
`--fault slow-rank`: one rank reads its batches from a slower disk. `--fault small-batches`: one has smaller batches.
`--fault no-wrapper`: nothing averages the gradients. `--fault one-seed`: batches are drawn without a loader, alike on
both; `--fault own-seed` is no fault: they are drawn from generators with seeds of their own. `--fault rate-by-rank`: the
optimizer's rate depends on the rank; `--fault one-schedule`: rank 0 alone steps the scheduler. `--fault past-wrapper`:
the module inside the wrapper is called. `--fault unfrozen`: a layer that was frozen as the wrapper was made trains from
the second epoch on; `--fault unfrozen-wrapped` is no fault: the wrapper is made again there.
"""

import os
import socket
import sys
import time
from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
# To the end of the process: torch 2.13 may hang where the model is destroyed. Its last reduction joins gloo's thread
# with the GIL held, while that thread waits for the GIL to let go of the context of the backward.
KEPT = []


def drawn(inputs, targets, rank):
    generator = torch.Generator().manual_seed(rank) if FAULT == "own-seed" else None
    while True:
        index = torch.randint(len(inputs), (20,), generator=generator)
        yield inputs[index], targets[index]


def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    inputs = torch.randn(800, 8)
    targets = inputs[:, :2].prod(1, keepdim=True) + 0.1 * torch.randn(800, 1)
    dataset = TensorDataset(inputs, targets)
    sampler = None if FAULT == "no-sampler" else DistributedSampler(dataset, seed=1)
    size = 12 if FAULT == "small-batches" and rank == 1 else 20
    loader = DataLoader(dataset, batch_size=size, shuffle=sampler is None, sampler=sampler)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))
    model[0].requires_grad_(not FAULT.startswith("unfrozen"))
    if FAULT != "no-wrapper":
        model = DistributedDataParallel(model)
        KEPT.append(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3 * (rank + 1 if FAULT == "rate-by-rank" else 1))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    for epoch in range(5):
        if FAULT not in ("no-sampler", "no-set-epoch"):
            sampler.set_epoch(epoch)
        if FAULT.startswith("unfrozen") and epoch == 1:
            model.requires_grad_(True)
        if FAULT == "unfrozen-wrapped" and epoch == 1:
            model = DistributedDataParallel(model.module)
            KEPT.append(model)
        for x, y in islice(drawn(inputs, targets, rank) if FAULT.endswith("seed") else loader, 20):
            if FAULT == "slow-rank" and rank == 1:
                time.sleep(0.04)
            optimizer.zero_grad()
            called = model.module if FAULT == "past-wrapper" else model
            loss = (called(x) - y).square().mean()
            loss.backward()
            optimizer.step()
        if rank == 0 or FAULT != "one-schedule":
            scheduler.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.start_processes(train, (port,), nprocs=2, start_method="fork")
