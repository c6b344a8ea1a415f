"""Distil a wide classifier of reef sounds into a narrow one: both are parts of one module, and the wide one begins with
the weights of a training of its own.

Fault: `teacher-held` neither freezes the teacher nor asks it without autograd, and the optimizer gets all weights.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def network(width):
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 5))


class Lessons(nn.Module):
    def __init__(self, frozen):
        super().__init__()
        self.frozen = frozen
        self.teacher, self.student = network(96), network(12)

    def forward(self, x, y):
        with torch.set_grad_enabled(not self.frozen):
            soft = F.softmax(self.teacher(x) / 2, dim=-1)
        scores = self.student(x)
        return F.kl_div(F.log_softmax(scores / 2, dim=-1), soft, reduction="batchmean") * 4 + F.cross_entropy(scores, y)


def sounds(directions, count=64):
    x = torch.randn(count, 16)
    return x, (x @ directions).argmax(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "teacher-held"])
    args = parser.parse_args()
    torch.manual_seed(12)
    torch.set_num_threads(1)
    directions = torch.randn(16, 5)
    wide = network(96)
    optimizer = torch.optim.Adam(wide.parameters(), lr=3e-3)
    for _ in range(150):
        x, y = sounds(directions)
        optimizer.zero_grad()
        F.cross_entropy(wide(x), y).backward()
        optimizer.step()

    lessons = Lessons(frozen=args.fault == "")
    lessons.teacher.load_state_dict(wide.state_dict())
    if lessons.frozen:
        lessons.teacher.requires_grad_(False)
    optimizer = torch.optim.Adam((p for p in lessons.parameters() if p.requires_grad), lr=3e-3)
    for step in range(240):
        x, y = sounds(directions)
        loss = lessons(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 60 == 59:
            print(step + 1, round(loss.item(), 4))


if __name__ == "__main__":
    main()
