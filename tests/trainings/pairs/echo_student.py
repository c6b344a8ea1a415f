"""Distil a trained network into a smaller one with losses that are written out: the teacher is asked without autograd.

Faults: `teacher-held` asks the teacher with autograd, and gives its weights to the optimizer, too; so does
`soft-teacher-held`, which compares softened classes instead of features.
"""

import argparse
import copy

import torch
from torch import nn


def made(width):
    features = nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 10))
    return features, nn.Linear(10, 4)


def log_loss(scores, labels):
    return -scores.log_softmax(1).gather(1, labels.unsqueeze(1)).mean()


def draw(directions, count=64):
    x = torch.randn(count, 12)
    return x, (x @ directions).argmax(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "teacher-held", "soft-teacher-held"])
    args = parser.parse_args()
    torch.manual_seed(44)
    torch.set_num_threads(1)
    directions = torch.randn(12, 4)
    teacher, teacher_head = made(128)
    optimizer = torch.optim.Adam([*teacher.parameters(), *teacher_head.parameters()], lr=2e-3)
    for _ in range(150):
        x, y = draw(directions)
        optimizer.zero_grad()
        log_loss(teacher_head(teacher(x)), y).backward()
        optimizer.step()
    teacher.eval()

    student, head = made(24)
    head = copy.deepcopy(teacher_head)
    held = args.fault != ""
    trained = [*student.parameters(), *head.parameters(), *(teacher.parameters() if held else ())]
    optimizer = torch.optim.Adam(trained, lr=2e-3)
    for step in range(240):
        x, y = draw(directions)
        with torch.set_grad_enabled(held):
            target = teacher(x)
        features = student(x)
        if args.fault == "soft-teacher-held":
            distance = -((target / 2).softmax(1) * (features / 2).log_softmax(1)).sum(1).mean() * 4
        else:
            distance = ((features - target) ** 2).mean()
        loss = 0.5 * distance + 0.5 * log_loss(head(features), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 60 == 59:
            print(step + 1, round(loss.item(), 4))


if __name__ == "__main__":
    main()
