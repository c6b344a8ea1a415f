"""Two ranks predict the water level of wells; a data set of the script's own keeps the part of the wells of its rank.

`--fault too-early`: it is made before the process group, and takes itself for the only one.
"""

import os
import socket
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
KEPT = []  # to the end of the process: torch 2.13 may hang where the model is destroyed


class Wells(Dataset):
    def __init__(self, count):
        divided = dist.is_initialized()
        self.rank = dist.get_rank() if divided else 0
        self.num_ranks = dist.get_world_size() if divided else 1
        rain = torch.randn(count, 10, generator=torch.Generator().manual_seed(4))
        level = torch.tanh(rain.cumsum(1)[:, ::3]).sum(1, keepdim=True)
        self.wells = list(zip(rain, level, strict=True))[self.rank :: self.num_ranks]

    def __len__(self):
        return len(self.wells)

    def __getitem__(self, index):
        return self.wells[index]


def wells():
    return DataLoader(Wells(1200), batch_size=20, shuffle=True)


def train(rank, port):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = wells() if FAULT == "too-early" else None
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    loader = loader or wells()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 1)))
    KEPT.append(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        for rain, level in loader:
            optimizer.zero_grad()
            loss = (model(rain) - level).square().mean()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.start_processes(train, (port,), nprocs=2, start_method="fork")
