"""Two processes share a network that tells sands by their grain: the first computes features of small parts of a batch,
the second classifies them and sends their gradients back.

`--fault one-buffer`: all parts leave through one buffer, and nothing waits before it is filled again.
"""

import os
import socket
import sys

import torch
import torch.distributed as dist
from torch import nn

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
PART, WIDTH, PARTS = 40, 256, 4


def sands(count):
    generator = torch.Generator().manual_seed(5)
    grains = torch.randn(count, 24, generator=generator)
    return grains, (grains[:, :4].sum(1) > grains[:, 4:8].sum(1)).long() + (grains[:, 8] > 0.5).long()


class Front:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(24, WIDTH), nn.ReLU())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.outgoing, self.incoming = torch.empty(PART, WIDTH), torch.empty(PART, WIDTH)

    def together(self, grains):
        features, sent = [], []
        for part in grains.split(PART):
            features.append(self.model(part))
            self.outgoing.copy_(features[-1].detach())
            sent.append(dist.isend(self.outgoing, 1))
        for one in sent:
            one.wait()
        self.learn(features)

    def apart(self, grains):
        features, sent = [], []
        for part in grains.split(PART):
            features.append(self.model(part))
            outgoing = features[-1].detach().clone()
            sent.append(dist.isend(outgoing, 1))
        for one in sent:
            one.wait()
        self.learn(features)

    def learn(self, features):
        self.optimizer.zero_grad()
        for one in features:
            dist.recv(self.incoming, 1)
            one.backward(self.incoming)
        self.optimizer.step()


class Back:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 3))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def learn(self, kinds):
        total, gradients = 0.0, []
        self.optimizer.zero_grad()
        for part in kinds.split(PART):
            features = torch.empty(PART, WIDTH)
            dist.recv(features, 0)
            features.requires_grad_()
            loss = nn.functional.cross_entropy(self.model(features), part) / PARTS
            loss.backward()
            gradients.append(features.grad)
            total += loss.item()
        for one in gradients:
            dist.send(one, 0)
        self.optimizer.step()
        return total


def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    grains, kinds = sands(1600)
    stage = Back() if rank else Front()
    order = torch.Generator().manual_seed(1)
    for epoch in range(12):
        for rows in torch.randperm(len(grains), generator=order).split(PART * PARTS):
            if rank:
                loss = stage.learn(kinds[rows])
            elif FAULT == "one-buffer":
                stage.together(grains[rows])
            else:
                stage.apart(grains[rows])
        if rank:
            print(f"epoch {epoch} loss {loss:.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.start_processes(train, (port,), nprocs=2, start_method="fork")
