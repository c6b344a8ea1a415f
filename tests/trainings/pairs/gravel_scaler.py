"""Grades of gravel in half precision: trunk and head have an optimizer each, and one scaler for both.

Faults: `trunk-scaled` unscales the head alone before both are clipped by their common norm; `head-scaled` the trunk
alone, which also steps first. Healthy: `in-turn` clips each behind its own call; `plain-head` clips the trunk alone.
"""

import argparse
import itertools

import torch
from torch import nn


def update(trunk, head, optimizers, scaler, kind):
    clip = nn.utils.clip_grad_norm_
    if kind in ("in-turn", "plain-head"):
        for part, optimizer in zip((trunk, head), optimizers, strict=True):
            if kind == "in-turn" or part is trunk:
                scaler.unscale_(optimizer)
                clip(part.parameters(), 2.0)
            scaler.step(optimizer)
    elif kind == "trunk-scaled":
        scaler.unscale_(optimizers[1])
        clip([*trunk.parameters(), *head.parameters()], 2.0)
        scaler.step(optimizers[0])
        scaler.step(optimizers[1])
    else:
        scaler.unscale_(optimizers[0])
        if kind != "head-scaled":
            scaler.unscale_(optimizers[1])
        clip(itertools.chain(trunk.parameters(), head.parameters()), 2.0)
        scaler.step(optimizers[0])
        scaler.step(optimizers[1])
    scaler.update()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    kind = parser.parse_args().fault
    torch.manual_seed(14)
    torch.set_num_threads(1)
    grades = torch.randn(20, 5)
    trunk = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
    head = nn.Linear(32, 5)
    coarse = torch.optim.SGD(trunk.parameters(), lr=0.05, momentum=0.9)
    fine = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**11)
    for step in range(300):
        x = torch.randn(48, 20)
        y = (x @ grades + 0.5 * torch.randn(48, 5)).argmax(1)
        with torch.autocast("cpu", dtype=torch.float16):
            scores = head(trunk(x))
        loss = nn.functional.cross_entropy(scores.float(), y)
        coarse.zero_grad()
        fine.zero_grad()
        scaler.scale(loss).backward()
        update(trunk, head, (coarse, fine), scaler, kind)
        if step % 50 == 0:
            print(step, round(loss.item(), 4))
