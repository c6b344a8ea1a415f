"""A thread reads sensor windows into two staging buffers while the network trains on the other one.

Sound: a buffer is filled again once the step that used it is over. --fault released-early gives a buffer back as soon
as the loop has taken it. --fault one-buffer queues one and the same buffer again and again, without a copy.
"""

import argparse
import queue
import threading
import time

import numpy as np
import torch
from torch import nn

WINDOW = 64
BATCH = 256


def windows(rng, out, labels):
    """Fill a batch: the frequency of an oscillation in noise is its class."""
    labels[:] = rng.integers(0, 4, BATCH)
    phase = rng.random((BATCH, 1)) * 6.28
    angle = np.arange(WINDOW)[None] * (0.2 + 0.15 * labels[:, None])
    out[:] = np.sin(angle + phase) + 0.5 * rng.standard_normal((BATCH, WINDOW))


def read(steps, free, filled, buffers):
    rng = np.random.default_rng(5)
    for _ in range(steps):
        slot = free.get()
        time.sleep(0.003)  # the disk
        windows(rng, *buffers[slot])
        filled.put(slot)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(3)
    torch.set_num_threads(1)
    steps, slots = 600, 1 if fault == "one-buffer" else 2
    buffers = [(np.zeros((BATCH, WINDOW), np.float32), np.zeros(BATCH, np.int64)) for _ in range(slots)]
    free, filled = queue.Queue(), queue.Queue()
    for index in range(4 if fault == "one-buffer" else slots):
        free.put(index % slots)
    threading.Thread(target=read, args=(steps, free, filled, buffers), daemon=True).start()
    model = nn.Sequential(nn.Linear(WINDOW, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        slot = filled.get()
        signal, label = (torch.from_numpy(one) for one in buffers[slot])
        if fault:
            free.put(slot)
        loss = nn.functional.cross_entropy(model(signal), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not fault:
            free.put(slot)
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
