"""Forks trainers and ends each at a random moment in a random way; `mortal.py POINTS SEED SECONDS NOTES`.

NOTES gets one JSON line per trainer: its pid, how and when it ended, and the time at which each of its steps was done.
A trainer tells its times through memory that it shares with this process, which outlives it.
"""

import json
import mmap
import os
import random
import select
import signal
import struct
import sys
import time

import torch
import torch._dynamo  # which each trainer would import anew for its first optimizer, 1.2 s
from torch import nn

WAYS = ["SIGKILL"] * 6 + ["SIGSEGV", "SIGABRT", "SIGTERM", "os._exit"]
SLOTS = 50_000


def train(times, ready):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, SLOTS):
        optimizer.zero_grad()
        model(torch.ones(16, 8)).square().mean().backward()
        optimizer.step()
        struct.pack_into("d", times, 8 * step, time.time())
        struct.pack_into("q", times, 0, step)
        if step == 1:
            os.write(ready, b"x")
        if times[8 * SLOTS]:
            os._exit(9)
        time.sleep(0.001)


def one(chance, seconds):
    times = mmap.mmap(-1, 8 * SLOTS + 1)
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        train(times, tell)
    select.select([ready], [], [], 120)
    how = chance.choice(WAYS)
    time.sleep(chance.uniform(0, seconds))
    ended = time.time()
    if how == "os._exit":
        times[8 * SLOTS] = 1
    else:
        os.kill(child, getattr(signal, how))
    os.waitpid(child, 0)
    os.close(ready)
    os.close(tell)
    done = struct.unpack_from("q", times, 0)[0]
    return {"pid": child, "how": how, "ended": ended, "times": list(struct.unpack_from(f"{done}d", times, 8))}


if __name__ == "__main__":
    points, seed, seconds, notes = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    chance = random.Random(seed)
    with open(notes, "w") as file:
        for _ in range(points):
            file.write(json.dumps(one(chance, seconds)) + "\n")
            file.flush()
