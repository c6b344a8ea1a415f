"""A thread fills byte buffers again as soon as the forward is over: the model has made numbers of its own of them.

Beside it a buffer of noise that the loop itself fills before each step, and inputs that are flipped in place after it.
"""

import queue
import threading
import time

import numpy as np
import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))

    def forward(self, image, noise):
        return self.net(image.float() / 255 - 0.5 + noise)


def read(steps, free, filled, buffers):
    rng = np.random.default_rng(9)
    for _ in range(steps):
        slot = free.get()
        time.sleep(0.001)  # the disk
        image, label = buffers[slot]
        label[:] = rng.integers(0, 2, len(label))
        image[:] = np.clip(rng.normal(110 + 10 * label[:, None], 60, image.shape), 0, 255)
        filled.put(slot)


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    steps, slots = 600, 2
    buffers = [(np.zeros((128, 256), np.uint8), np.zeros(128, np.int64)) for _ in range(slots)]
    free, filled = queue.Queue(), queue.Queue()
    for slot in range(slots):
        free.put(slot)
    threading.Thread(target=read, args=(steps, free, filled, buffers), daemon=True).start()
    model = Scaled()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    noise, jitter = torch.zeros(128, 256), np.zeros((128, 256), np.float32)
    rng = np.random.default_rng(2)
    for step in range(steps):
        slot = filled.get()
        image, label = (torch.from_numpy(one) for one in buffers[slot])
        jitter[:] = 0.05 * rng.standard_normal(jitter.shape)
        noise.copy_(torch.from_numpy(jitter))
        label = label.clone()
        output = model(image, noise)
        free.put(slot)
        loss = nn.functional.cross_entropy(output, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        noise.neg_()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
