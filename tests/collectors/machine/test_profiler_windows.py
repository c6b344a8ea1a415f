"""Windows of torch.profiler: one thread at a time, and nothing of their own end in the steps that they show."""

from __future__ import annotations

import sys

import pytest

from tests.collectors.conftest import Collect
from tracelyze.analyzers import diagnose
from tracelyze.analyzers.kineto import summarise

pytest.importorskip("torch")

PROGRAM = """
import sys, threading
import torch
from torch import nn

def train():
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(120):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(torch.randn(8, 20)), torch.zeros(8, 1)).backward()
        optimizer.step()

if "threads" in sys.argv:
    threads = [threading.Thread(target=train) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
else:
    train()
"""


def windows_of(done):
    return [path for process in done.run.processes for path in sorted((done.folder / process.name).glob("window-*"))]


def test_the_end_of_a_window_is_in_no_step_of_it(collect: Collect, tmp_path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    done = collect(sys.executable, str(tmp_path / "train.py"), options=("--profile-every", "40"))
    (process,) = done.run.processes
    rows = list(process.tables["windows"].records())
    assert [(row["first_step"], row["last_step"]) for row in rows] == [(11, 14), (55, 58), (99, 102)]
    for path, row in zip(windows_of(done), rows, strict=True):
        (summary,) = summarise([path])
        assert len(summary.number) == 3  # from the end of one optimizer step to the end of the next
        assert summary.start[-1] + summary.duration[-1] <= 1e6 * 4 * row["step_seconds"]
    shown = diagnose(done.folder, picture=True)
    assert shown.picture is not None
    assert shown.charts[0].x == [100.0, 101.0, 102.0]  # the steps of the run, of its last window
    assert "step 10" in shown.picture.timelines[0].title


def test_threads_take_turns(collect: Collect, tmp_path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    done = collect(sys.executable, str(tmp_path / "train.py"), "threads", options=("--profile-every", "10"))
    assert [process.exit.kind for process in done.run.processes] == ["finished"] * 3
    assert [len(process.steps) for process in done.run.processes] == [120] * 3
    assert windows_of(done)
    trainings = diagnose(done.folder).run.trainings
    assert len(trainings) == 3
    assert {training.steps for training in trainings} == {120}
    assert {training.optimizer for training in trainings} == {"SGD"}
