"""Traces that the program's own profiler writes are added to the run that was recorded of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from tests.collectors.conftest import Collect, environment
from tests.fork_server import client
from tests.kineto.made import training
from tracelyze.analyzers import diagnose, load

pytestmark = pytest.mark.starts_programs

torch = pytest.importorskip("torch")

PROGRAM = """
import sys, time
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
windows = iter(["first.json", "second.json.gz"])
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=20, warmup=1, active=9, repeat=2),
             on_trace_ready=lambda p: p.export_chrome_trace(sys.argv[1] + "/" + next(windows))) as profiler:
    for step in range(80):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(torch.randn(8, 20)), torch.zeros(8, 1)).backward()
        optimizer.step()
        time.sleep(0.01)
        profiler.step()
"""


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return client.shared().run([sys.executable, "-m", "tracelyze", *map(str, arguments)], environment())


@pytest.fixture
def done(collect: Collect, tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    traces = tmp_path / "traces"
    traces.mkdir()
    return collect(sys.executable, str(tmp_path / "train.py"), str(traces)), traces


def test_windows_of_the_programs_own_profiler_are_judged_with_its_run(done) -> None:
    collected, traces = done
    before = diagnose(collected.folder)
    result = run("import", "kineto", traces, collected.folder)
    assert result.returncode == 0, result.stderr
    assert "added 2 traces of 1 rank to the run: steps 22 to 30, 52 to 60" in result.stderr
    (process,) = load(collected.folder).processes
    rows = list(process.tables["windows"].records())
    assert [(row["first_step"], row["last_step"]) for row in rows] == [(22, 30), (52, 60)]
    assert len(process.steps) == 80
    after = diagnose(collected.folder, picture=True)
    assert {one.rule for one in after.findings} == {one.rule for one in before.findings}
    assert after.picture is not None
    assert after.picture.timelines
    shown = [chart for chart in after.charts if "profiled steps" in chart.title]
    assert shown[0].x == list(range(52, 61))  # the run's numbers, not the profiler's


def test_a_second_window_may_come_later_but_none_twice(done) -> None:
    collected, traces = done
    for name in ("second.json.gz", "first.json"):
        assert run("import", "kineto", traces / name, collected.folder).returncode == 0
    (process,) = load(collected.folder).processes
    assert [row["first_step"] for row in process.tables["windows"].records()] == [52, 22]
    again = run("import", "kineto", traces / "first.json", collected.folder)
    assert again.returncode == 2
    assert "already" in again.stderr
    assert again.stderr.count("\n") == 1


def test_what_does_not_belong_to_the_run_is_refused_in_one_line(done, tmp_path) -> None:
    collected, traces = done
    before = sorted(path.name for path in collected.folder.rglob("*"))
    elsewhere = training(base=1e6 * (time.time() + 86_400)).write(tmp_path / "tomorrow.json")
    document = json.loads((traces / "first.json").read_text())
    other = tmp_path / "other.json"
    other.write_text(json.dumps(document | {"distributedInfo": {"rank": 5, "world_size": 8}}))
    (tmp_path / "broken.json").write_text("{")
    for file, reason in ((elsewhere, "trained from"), (other, "no rank 5"), (tmp_path / "broken.json", "traceEvents")):
        result = run("import", "kineto", traces / "first.json", file, collected.folder)
        assert result.returncode == 2
        assert reason in result.stderr
        assert result.stderr.count("\n") == 1
    assert sorted(path.name for path in collected.folder.rglob("*")) == before
