"""Two ranks tell scenes apart and, in every other step, guess their depth by a head of its own, under
DistributedDataParallel, which is told that not every step uses the whole model.

`--fault whole-model`: it is not told, and waits for the gradients of the head that a step leaves out.
`--fault unused-output` is no fault: each step computes the depth, the loss of every other one leaves it out, and the
wrapper is told.
"""

import os
import socket
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
KEPT = []  # to the end of the process, see two_ranks.py


class Scenes(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 32), nn.ReLU())
        self.kind = nn.Linear(32, 4)
        self.depth = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x, with_depth):
        features = self.body(x)
        return self.kind(features), self.depth(features) if with_depth else None


def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    inputs = torch.randn(1200, 12)
    kinds, depths = inputs[:, :4].argmax(1), inputs[:, 4:6].sum(1, keepdim=True).tanh()
    dataset = TensorDataset(inputs, kinds, depths)
    sampler = DistributedSampler(dataset, seed=1)
    loader = DataLoader(dataset, batch_size=20, sampler=sampler)
    model = DistributedDataParallel(Scenes(), find_unused_parameters=FAULT != "whole-model")
    KEPT.append(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for number, (x, kind, depth) in enumerate(loader):
            counts = number % 2 == 0
            optimizer.zero_grad()
            scores, guessed = model(x, counts or FAULT == "unused-output")
            loss = nn.functional.cross_entropy(scores, kind)
            if counts:
                loss = loss + nn.functional.mse_loss(guessed, depth)
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
