"""Two ranks learn kinds of noisy patterns, listed folder by folder, under DistributedDataParallel.

`--fault kept-in-order`: the sampler does not shuffle, so that each batch holds one kind. `--fault mixed-files` neither,
and is no fault: the files were mixed when they were listed.
"""

import os
import socket
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
KEPT = []  # to the end of the process, see two_ranks.py
KINDS = 5


class Folders(Dataset):
    def __init__(self, per_kind, seed):
        generator = torch.Generator().manual_seed(seed)
        looks = torch.randn(KINDS, 24, generator=torch.Generator().manual_seed(0))
        self.files = [(kind, torch.randn(24, generator=generator)) for kind in range(KINDS) for _ in range(per_kind)]
        if FAULT == "mixed-files":
            self.files = [self.files[at] for at in torch.randperm(len(self.files), generator=generator)]
        self.looks = looks

    def __len__(self):
        return len(self.files)

    def __getitem__(self, at):
        kind, noise = self.files[at]
        return self.looks[kind] + 1.5 * noise, kind


def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dataset = Folders(120, 1)
    sampler = DistributedSampler(dataset, num_replicas=2, rank=rank, shuffle=not FAULT)
    loader = DataLoader(dataset, batch_size=12, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, KINDS)))
    KEPT.append(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for inputs, kinds in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), kinds)
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
