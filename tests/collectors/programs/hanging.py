"""Two ranks over gloo, one of which stands still, as the argument says. Started once for each rank.

skips      rank 1 leaves out one all_reduce: Gloo aborts the rank that gets more than it waits for
keyboard   rank 1 waits for input, until the launcher ends it
sleeps     rank 1 sleeps before a collective for longer than the others are patient
ends       rank 1 has fewer batches, and ends
evaluates  rank 0 evaluates for a while, in which rank 1 waits; then both go on
"""

import datetime
import faulthandler
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

from tracelyze.collectors.signals.machine import stalls

stalls.SECONDS, stalls.STEPS = 1.0, 0.0
HOW, RANK = sys.argv[1], int(os.environ["RANK"])
READS, _WRITES = os.pipe()
PATIENCE = 60 if HOW == "evaluates" else 5  # seconds


def wait_for_something_else():
    time.sleep(7.0)


def evaluate(model):
    model.eval()
    with torch.no_grad():
        for _ in range(25):
            model(torch.randn(4, 8))
            time.sleep(0.1)
    model.train()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    # Gloo may hang at the end of a program that has lost its peers. This clock needs no GIL to end the process.
    faulthandler.dump_traceback_later(60, exit=True)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    group = dist.new_group(timeout=datetime.timedelta(seconds=PATIENCE), group_desc="data parallel")
    layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    model = nn.parallel.DistributedDataParallel(layers, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 8 if HOW == "ends" and RANK == 1 else 12
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        if HOW == "skips":
            time.sleep(0.1)  # what an aborted process had not written yet is lost, its folder included
        if HOW == "evaluates" and step == 8 and RANK == 0:
            evaluate(model.module)
        if HOW == "sleeps" and step == 8 and RANK == 1:
            wait_for_something_else()
        if HOW == "keyboard" and step == 8 and RANK == 1:
            sys.stdin = os.fdopen(READS)
            input("Shall we go on? ")
        if HOW == "skips" and step == 8 and RANK == 1:
            continue
        total = torch.ones(4, 3)
        dist.all_reduce(total, group=group)
    if HOW == "evaluates":
        # Gloo's threads need the GIL to let go of `total`. Torch 2.13 destroys a group with the GIL held, and waits for
        # these threads: without this pause a quarter of all plain runs of this program never end.
        time.sleep(0.5)
        dist.destroy_process_group()


main()
