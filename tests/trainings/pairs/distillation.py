"""Distil a trained teacher into a smaller student; the teacher is in eval mode and under `no_grad`. The
student is saved as it learns.

Faults: `student-loss-item` adds up Python numbers and wraps them into a new tensor; `teacher-graph-kept` runs the
teacher with gradients and collects its outputs; `teacher-held` gives the teacher to the optimizer, too;
`teacher-thawed` holds a teacher that stands still, until a second phase turns on all gradients.
"""

import argparse
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    temperature: float = 3.0
    alpha: float = 0.7
    batch: int = 64
    teacher_steps: int = 150
    student_steps: int = 300
    lr: float = 2e-3


def draw(n, w):
    x = torch.randn(n, 20)
    return x, (x @ w).argmax(1)


def train_teacher(cfg, teacher, w):
    optimizer = torch.optim.Adam(teacher.parameters(), lr=cfg.lr)
    for _ in range(cfg.teacher_steps):
        x, y = draw(cfg.batch, w)
        optimizer.zero_grad()
        F.cross_entropy(teacher(x), y).backward()
        optimizer.step()


def distil(cfg, teacher, student, w, fault):
    teacher.eval()
    held = fault in ("teacher-held", "teacher-thawed")
    trained = [*student.parameters(), *(teacher.parameters() if held else ())]
    both = nn.ModuleList([teacher, student])
    teacher.requires_grad_(fault != "teacher-thawed")
    optimizer = torch.optim.Adam(trained, lr=cfg.lr)
    path = os.path.join(tempfile.mkdtemp(), "student.pt")
    soft_targets = []
    for step in range(cfg.student_steps):
        x, y = draw(cfg.batch, w)
        if fault == "teacher-thawed" and step == cfg.student_steps // 4:
            both.requires_grad_(True)
        if fault == "teacher-graph-kept":
            teacher_logits = teacher(x)
            soft_targets.append(teacher_logits)
            teacher_logits = teacher_logits.detach()
        elif held:
            teacher_logits = teacher(x)
        else:
            with torch.no_grad():
                teacher_logits = teacher(x)
        logits = student(x)
        t = cfg.temperature
        soft = F.kl_div(F.log_softmax(logits / t, 1), F.softmax(teacher_logits / t, 1), reduction="batchmean") * t * t
        hard = F.cross_entropy(logits, y)
        if fault == "student-loss-item":
            loss = torch.tensor(cfg.alpha * soft.item() + (1 - cfg.alpha) * hard.item(), requires_grad=True)
        else:
            loss = cfg.alpha * soft + (1 - cfg.alpha) * hard
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 60 == 59:
            torch.save({"student": student.state_dict(), "optimizer": optimizer.state_dict()}, path)
            print(f"student {step + 1}: total {loss.item():.4f} soft {soft.item():.4f} hard {hard.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    torch.manual_seed(17)
    torch.set_num_threads(1)
    config = Config()
    weights = torch.randn(20, 6)
    big = nn.Sequential(
        nn.Linear(20, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 6)
    )
    small = nn.Sequential(nn.Linear(20, 24), nn.ReLU(), nn.Linear(24, 6))
    train_teacher(config, big, weights)
    distil(config, big, small, weights, parser.parse_args().fault)
