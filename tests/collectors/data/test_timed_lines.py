"""The line that takes most of the time of a batch, timed from call to call."""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tracelyze.collectors.program.loading import timed_lines
from tracelyze.collectors.program.loading.timed_lines import Timed, TimedLines

SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()


def sleeps(values: list[float]) -> Any:
    total = sum(values)
    time.sleep(0.004)  # the line
    return total


def multiplies(values: list[float]) -> Any:
    total = float(sum(values))
    for a in values:
        for b in values:  # the line
            total += a * b
    return total


def calls(values: list[float]) -> Any:
    text = [str(one) for one in values]
    return [parse(one) for one in text]


def parse(text: str) -> float:
    time.sleep(0.0001)  # the line
    return float(text)


def walks(values: list[float]) -> Any:
    found = []
    for one in values:
        for _ in range(40):
            found.append(max(min(one * 2.0, 3.0), -3.0))  # the line
    return sorted(found)


def timed(make: Callable[[list[float]], Any]) -> Timed | None:
    lines = TimedLines()
    for number in range(2):
        assert lines.begin() == (number == 1), "the first batch is not timed"
        for _ in range(8):
            make([float(one) for one in range(80)])
        lines.end()
    assert sys.getprofile() is None
    return lines.found()


@pytest.mark.skipif(sys.getprofile() is not None, reason="the tests are profiled")
@pytest.mark.parametrize("make", [sleeps, multiplies, calls, walks])
def test_the_line_that_takes_most_of_the_time(make: Callable[[list[float]], Any]) -> None:
    found = timed(make)
    assert found is not None
    assert "# the line" in SOURCE[found.line - 1]
    assert found.function == (parse if make is calls else make).__name__
    assert found.there > found.whole / 3, "the two lines of a loop share it"


@pytest.mark.skipif(sys.getprofile() is not None, reason="the tests are profiled")
@pytest.mark.parametrize(("taken_away", "seconds"), [(False, 0.04), (True, 0.0)])
def test_while_others_hold_the_processor_no_line_runs(
    monkeypatch: pytest.MonkeyPatch, taken_away: bool, seconds: float
) -> None:
    """A sleep stands for that time, told apart by the system's count of how often the processor was taken away."""
    counted = iter(range(1000)) if taken_away else itertools.repeat(0)
    monkeypatch.setattr(timed_lines, "_taken_away", lambda: next(counted))

    def make() -> str:
        text = str(len([one * one for one in range(2000)]))
        time.sleep(0.04)
        return text

    lines = TimedLines()
    for _ in range(2):
        lines.begin()
        make()
        lines.end()
    found = lines.found()
    assert found is not None
    assert seconds <= found.whole / 1e6 < seconds + 0.02


@pytest.mark.skipif(sys.getprofile() is not None, reason="the tests are profiled")
def test_what_stands_around_the_hooks_makes_no_samples() -> None:
    """A worker was forked in the loop of the script, whose frames are below its own: libraries' time is not theirs."""

    def fetch(lines: TimedLines) -> None:
        assert not lines.begin()
        lines.end()
        lines.begin()
        for _ in range(20):
            parse("1.0")
            "".join(map(str, range(20_000)))  # the fetcher, and what it calls of libraries
        lines.end()

    def loader(lines: TimedLines) -> None:
        fetch(lines)

    hooks = timed_lines.__file__.replace("program/loading/timed_lines", "hooks/loaders")
    fetch.__code__ = fetch.__code__.replace(co_filename=f"{hooks} (as importlib._bootstrap)")
    loader.__code__ = loader.__code__.replace(co_filename=functools.__file__)
    lines = TimedLines()
    loader(lines)
    found = lines.found()
    assert found is not None
    assert found.function == "parse"


def test_it_stops_by_itself() -> None:
    lines = TimedLines()
    lines.begin()
    lines.begin()
    for _ in range(timed_lines.MOST):
        len(SOURCE)
    assert sys.getprofile() is None
    lines.end()


def test_what_a_worker_hands_over() -> None:
    found = Timed(2000, 1500, 12, "__getitem__", "/data/train.py")
    assert timed_lines.of_bytes(timed_lines.to_bytes(found) + b"rest") == found
    assert timed_lines.of_bytes(b"\0" * timed_lines.SPACE) is None
    assert timed_lines.of_bytes(b"20\n1") is None
    assert timed_lines.to_bytes(found._replace(file="x" * timed_lines.SPACE)) == b""


KILLED = """
import os, signal, time
import torch
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, i):
        time.sleep(0.001)  # the line
        return torch.ones(4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
begin = time.monotonic()
while time.monotonic() - begin < 3.5:
    for x in DataLoader(Slow(), batch_size=8):
        optimizer.zero_grad(); model(x).mean().backward(); optimizer.step()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.starts_programs
def test_a_killed_program_leaves_the_line(collect: Any, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(KILLED)
    (process,) = collect(sys.executable, str(script)).run.processes
    rows = [row for row in process.events.records() if row["kind"] == "loading"]
    assert rows
    assert "# the line" in rows[-1]["source"]
