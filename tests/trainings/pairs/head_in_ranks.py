"""A body and a head, each under a DistributedDataParallel of its own, on two ranks.

`--fault past-wrapper`: a method of the module inside the head's wrapper is called in place of the wrapper.
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
KEPT = []  # torch 2.13 may hang where a wrapper is destroyed: see two_ranks.py


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, features):
        return self.predict(features)

    def predict(self, features):
        return self.layers(features)


def loss_of(body, head, x, y):
    features = body(x)
    if FAULT == "past-wrapper":
        predicted = head.module.predict(features)
    else:
        predicted = head(features)
    return nn.functional.l1_loss(predicted, y)


def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    inputs = torch.randn(800, 8)
    targets = inputs[:, :2].prod(1, keepdim=True) + 0.1 * torch.randn(800, 1)
    dataset = TensorDataset(inputs, targets)
    sampler = DistributedSampler(dataset, seed=1)
    loader = DataLoader(dataset, batch_size=20, sampler=sampler)
    body = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 16)))
    head = DistributedDataParallel(Head())
    KEPT.extend([body, head])
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=3e-3)
    for epoch in range(6):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(body, head, x, y)
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
