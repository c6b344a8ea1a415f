"""Gradient scalers and learning-rate schedulers that are used in the wrong way, and in the ways that look like it."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tracelyze.analyzers import diagnose

pytest.importorskip("torch")

SCALED = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.SGD(net.parameters(), 0.05)
make = lambda: torch.amp.GradScaler("cpu", init_scale=256.0)
scaler = make()
HOW = {how!r}
for step in range(40):
    x = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(x)
    first = (out[:, 0].float() - x[:, 0]).square().mean()
    second = (out[:, 1].float() - x[:, 1]).square().mean()
    opt.zero_grad()
    if HOW == "anew":
        scaler = make()
    if HOW == "one of two":
        scaler.scale(first).backward(retain_graph=True)
        second.backward()
    elif HOW == "both":
        scaler.scale(first).backward(retain_graph=True)
        (scaler.scale(second) / 2).backward()
    elif HOW == "in a list":
        sum(scaler.scale([first, second])).backward()
    elif HOW == "for nothing":
        scaler.scale(first + second)
        (first + second).backward()
    else:
        scaler.scale(first + second).backward()
    scaler.step(opt)
    scaler.update()
"""

SCHEDULED = """
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, StepLR
torch.manual_seed(0)
net = nn.Linear(8, 1)
opt = torch.optim.SGD(net.parameters(), 0.05)
HOW = {how!r}
warm = HOW == "out of zero"
sched = LambdaLR(opt, lambda n: min(1.0, n / 20)) if warm else CosineAnnealingLR(opt, 10) if "cosine" in HOW \\
    else StepLR(opt, 5, 0.5)
if warm or HOW == "resumed":
    sched.step()
if HOW == "resumed":
    sched.step(); sched.step()
for epoch in range(12 if "cosine" not in HOW else 10):
    if HOW == "first":
        sched.step()
    for batch in range(40):
        x = torch.randn(16, 8)
        loss = (net(x) - x[:, :1]).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()
        if warm or HOW == "cosine per batch":
            sched.step()
    if HOW in ("last", "resumed", "cosine"):
        sched.step()
"""


PLATEAU = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau
torch.manual_seed(0)
x = torch.randn(600, 10)
y = (x[:, 0] + x[:, 1] > 0).long()
net = nn.Linear(10, 2)
opt = torch.optim.SGD(net.parameters(), 0.05)
watched, mode = {how!r}.split(" in ")
sched = ReduceLROnPlateau(opt, mode=mode, patience=0, factor=0.5)
for epoch in range(10):
    for rows in torch.randperm(400).split(20):
        loss = F.cross_entropy(net(x[rows]), y[rows])
        opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        scores = net(x[400:])
        validation = F.cross_entropy(scores, y[400:])
    right = (scores.argmax(1) == y[400:]).float().mean()
    if watched == "nothing":
        right = scores[:0].mean()  # of no samples: NaN
    value = validation if watched == "loss" else right.item() if watched in ("accuracy", "nothing") else 1.0 + epoch
    sched.step(value)
"""


def status(collect: Any, folder: Path, script: str, rule: str, how: str) -> tuple[str, str]:
    file = folder / "train.py"
    file.write_text(script.format(how=how))
    diagnosis = diagnose(collect(sys.executable, str(file)).run, select=[rule])
    return diagnosis.checks[0].status, diagnosis.findings[0].title if diagnosis.findings else ""


@pytest.mark.starts_programs
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("anew", "new GradScaler"),
        ("one of two", "not scaled"),
        ("for nothing", "is not used"),
        ("both", ""),
        ("in a list", ""),
        ("once", ""),
    ],
)
def test_scalers(collect: Any, tmp_path: Path, how: str, words: str) -> None:
    found, title = status(collect, tmp_path, SCALED, "scaler-misuse", how)
    assert (found, words in title) == ("fired" if words else "passed", True)


@pytest.mark.starts_programs
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("loss in max", "in mode max cuts"),
        ("accuracy in min", "in mode min cuts"),
        ("nothing in min", "is NaN or infinite"),
        ("loss in min", ""),
        ("accuracy in max", ""),
        ("perplexity in min", ""),
    ],
)
def test_what_a_plateau_scheduler_watches(collect: Any, tmp_path: Path, how: str, words: str) -> None:
    found, title = status(collect, tmp_path, PLATEAU, "learning-rate-schedule", how)
    assert (found, words in title) == ("fired" if words else "passed", True), title


@pytest.mark.starts_programs
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("first", "before the optimizer"),
        ("never", "never stepped"),
        ("cosine per batch", "every batch"),
        ("last", ""),
        ("out of zero", ""),
        ("resumed", ""),
        ("cosine", ""),
    ],
)
def test_schedulers(collect: Any, tmp_path: Path, how: str, words: str) -> None:
    found, title = status(collect, tmp_path, SCHEDULED, "learning-rate-schedule", how)
    assert (found, words in title) == ("fired" if words else "passed", True), title


def test_the_length_that_the_factor_of_a_lambda_was_given() -> None:
    """As functions that make schedules hand it on: bound to the factor, or as their own argument."""
    import torch

    from tracelyze.collectors.signals.optimizer.schedules import _length_of_factor

    def bound(step: int, *, num_training_steps: float, rest: int = 0) -> float:
        return 1 - step / (num_training_steps + rest)

    def made(num_training_steps: float) -> Any:
        return lambda step: 1 - step / num_training_steps

    total = 60
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    for factor, length in (
        (partial(bound, num_training_steps=80), 80),
        (made(70), 70),
        (made(70.5), None),
        (lambda step: 1 - step / total, None),  # which may count anything
    ):
        assert _length_of_factor(torch.optim.lr_scheduler.LambdaLR(optimizer, factor)) == length
    assert _length_of_factor(torch.optim.lr_scheduler.StepLR(optimizer, 3)) is None
