"""Two ranks read letters of unequal length and guess their tone; sorted by length, so that a batch is filled up little.

The samples are dealt out in turn. Fault `blocks` gives each rank a block of the sorted samples: the last one reads all
long letters, and the other waits for it. The wrong line is `mine = order[rank * part : (rank + 1) * part]`.
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LETTERS, BATCH, EPOCHS, WIDTH = 1600, 16, 2, 64
KEPT = []  # to the end of the process, as in two_ranks.py


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(90, WIDTH)
        self.read = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.tone = nn.Linear(WIDTH, 1)

    def forward(self, ids):
        return self.tone(self.read(self.words(ids))[0].mean(1)).squeeze(-1)


def letters():
    generator = torch.Generator().manual_seed(11)
    found = []
    for _ in range(LETTERS):
        tone = int(torch.randint(2, (), generator=generator))
        length = 6 + int(torch.rand((), generator=generator) ** 3 * 300)
        ids = torch.randint(90, (length,), generator=generator)
        kind = torch.rand(length, generator=generator) < 0.4
        found.append((torch.where(kind, ids // 2 + 45 * tone, ids), float(tone)))
    return found


def train(rank, port, blocks):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = letters()
    order = sorted(range(LETTERS), key=lambda one: len(data[one][0]))
    part = LETTERS // 2
    if blocks:
        mine = order[rank * part : (rank + 1) * part]
    else:
        mine = order[rank::2]
    model = DistributedDataParallel(Reader())
    KEPT.append(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(EPOCHS):
        begins = torch.randperm(len(mine) // BATCH, generator=torch.Generator().manual_seed(epoch)) * BATCH
        for begin in begins.tolist():
            chosen = [data[one] for one in mine[begin : begin + BATCH]]
            ids = nn.utils.rnn.pad_sequence([one for one, _ in chosen], batch_first=True)
            tones = torch.tensor([tone for _, tone in chosen])
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(ids), tones)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "blocks"])
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.start_processes(train, (port, args.fault == "blocks"), nprocs=2, start_method="fork")
