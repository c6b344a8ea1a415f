"""A model in two stages, each on a rank of its own, which send activations and their gradients to each other.

The second one reads what the first one sends before it has arrived: it waits for its letters at the end of a step.
"""

import os
import socket

import torch
import torch.distributed as dist
from torch import nn

WIDTH, PARTS, ROWS = 32, 4, 16


class Mailbox:
    def __init__(self):
        self.slots = [torch.zeros(ROWS, WIDTH) for _ in range(PARTS)]
        self.letters = []

    def expect(self):
        for number, slot in enumerate(self.slots):
            self.letters.append(dist.irecv(slot, src=0, tag=number))

    def fetch(self, number):
        return self.slots[number].clone().requires_grad_()

    def close(self):
        for letter in self.letters:
            letter.wait()
        self.letters.clear()


def first_half(stage, optimizer, batches):
    outputs, sent = [], []
    for number, x in enumerate(batches):
        outputs.append(stage(x))
        sent.append(dist.isend(outputs[-1].detach(), dst=1, tag=number))
    optimizer.zero_grad()
    for number, out in enumerate(outputs):
        gradient = torch.empty_like(out)
        dist.recv(gradient, src=1, tag=100 + number)
        out.backward(gradient)
    for letter in sent:
        letter.wait()
    optimizer.step()


def second_half(stage, optimizer, batches, box):
    box.expect()
    optimizer.zero_grad()
    sent = []
    for number, y in enumerate(batches):
        h = box.fetch(number)
        loss = (stage(h)[:, :2] - y).square().mean() / PARTS
        loss.backward()
        sent.append((h.grad, dist.isend(h.grad, dst=0, tag=100 + number)))
    box.close()
    for _, letter in sent:
        letter.wait()
    optimizer.step()
    return PARTS * loss.item()


def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    stage = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.Adam(stage.parameters(), lr=2e-3)
    box, order = Mailbox(), torch.Generator().manual_seed(5)
    inputs = torch.randn(2048, WIDTH, generator=order)
    targets = torch.stack([inputs[:, :4].sum(1), inputs[:, 4:8].sum(1)], 1) / 2
    for epoch in range(4):
        for index in torch.randperm(len(inputs), generator=order).split(PARTS * ROWS):
            if rank == 0:
                first_half(stage, optimizer, inputs[index].split(ROWS))
            else:
                loss = second_half(stage, optimizer, targets[index].split(ROWS), box)
        if rank == 1:
            print(f"epoch {epoch} loss {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.start_processes(train, (port,), nprocs=2, start_method="fork")
