"""A thread prefetches batches and meets a file that is cut short: it ends, and the loop waits for its next batch until
the time limit of the job is over."""

import queue
import signal
import threading

import torch
from torch import nn
from torch.nn import functional

LIMIT = 75  # seconds: the kernel ends the program then
BATCHES = 120  # of which the files hold


def read(number):
    if number == BATCHES:
        raise EOFError("shard-0003.bin is cut short")
    points = torch.randn(32, 2)
    return points, (points.square().sum(1) > 1.4).long()


def prefetch(ready):
    number = 0
    while True:
        ready.put(read(number))
        number += 1


def main():
    signal.alarm(LIMIT)
    torch.manual_seed(5)
    torch.set_num_threads(1)
    ready = queue.Queue(maxsize=8)
    threading.Thread(target=prefetch, args=(ready,), name="prefetch", daemon=True).start()
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(400):
        points, labels = ready.get()
        loss = functional.cross_entropy(model(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
