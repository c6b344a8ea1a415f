"""Traces that torch's own profiler records in this process: the current format, without a device."""

from __future__ import annotations

import time

import pytest

from tracelyze.analyzers.kineto import diagnose_traces, summarise
from tracelyze.analyzers.kineto.attribution.attribution import CAUSES

torch = pytest.importorskip("torch")
STEPS = 6


class Slow(torch.utils.data.Dataset):
    """Items that take `seconds` each to make."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 8 * (STEPS + 3)

    def __getitem__(self, index: int):
        if self.seconds:
            time.sleep(self.seconds)
        return torch.full((64,), float(index)), torch.zeros(1)


def record(path, seconds: float, marks: bool, stacks: bool = False, work: float = 0.02):
    """A small training under the profiler, `work` seconds per step; the trace's path. `marks`: with its own steps."""
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(Slow(seconds), batch_size=8)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=STEPS, repeat=1) if marks else None
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=schedule,
        on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
        with_stack=stacks,
    ) as profiler:
        for number, (inputs, targets) in enumerate(loader):
            if number == STEPS + 1:
                break
            time.sleep(work)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            if marks:
                profiler.step()
    return path


@pytest.mark.parametrize(
    ("marks", "source", "count"), [(True, "ProfilerStep", STEPS), (False, "optimizer steps", STEPS - 1)]
)
def test_a_slow_dataset_is_found(tmp_path, marks, source, count):
    path = record(tmp_path / "trace.json.gz", 0.004, marks)
    (one,) = summarise([path])
    assert (one.steps_from, len(one.number)) == (source, pytest.approx(count, abs=1))
    assert one.host is not None
    inside = one.host[:, CAUSES.index("input")]
    assert (inside[1:-1] >= 8 * 4_000).all()
    diagnosis = diagnose_traces(path)
    # A busy machine may well slow a step down on top of that.
    assert {finding.rule for finding in diagnosis.findings} - {"slow-steps"} == {"dataloader-bottleneck"}


def test_a_quick_dataset_is_not(tmp_path):
    path = record(tmp_path / "trace.json", 0.0, marks=True, stacks=True, work=0.2)
    diagnosis = diagnose_traces(path)
    assert "dataloader-bottleneck" not in {finding.rule for finding in diagnosis.findings}
    assert not [note for note in diagnosis.run.notes if "not valid" in note or "could not be read" in note]


def test_the_page_of_a_trace_recorded_with_stacks_knows_the_lines(tmp_path):
    path = record(tmp_path / "trace.json.gz", 0.004, marks=True, stacks=True)
    found = diagnose_traces(path, picture=True)
    assert found.picture is not None
    names = [lane.name for timeline in found.picture.timelines for lane in timeline.lanes]
    assert {name.partition(",")[0] for name in names} >= {"main thread", "data loader"}
    (operators,) = found.picture.listings  # no device, so no kernels
    heads = [head for head, _ in operators.columns]
    rows = {row[0]: dict(zip(heads, row, strict=True)) for row in operators.rows}
    loader = next(row for name, row in rows.items() if name.startswith("enumerate(DataLoader)"))
    assert loader["Host, in all per step"] >= 8 * 4
    assert "test_recorded_here.py" in rows["aten::addmm"]["Python"]
