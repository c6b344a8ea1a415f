"""`tracelyze cut`: the events of a stretch as they stand in the file, and what belongs to them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.kineto.made import Made, training
from tracelyze.analyzers.kineto import cutting, diagnose_traces
from tracelyze.analyzers.kineto.reading.importer import import_traces
from tracelyze.cli import app
from tracelyze.errors import InputError
from tracelyze.reports.drawing import lanes


def events_of(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(json.loads(text)["traceEvents"])


def test_a_step_is_cut_with_its_events_unchanged(tmp_path):
    trace = training(steps=5, kernels=20).write(tmp_path / "trace.json.gz")
    begin, end = cutting.of_step(trace, 2)
    made = cutting.write(trace, tmp_path / "cut.json", begin, end)
    whole, cut = events_of(trace), events_of(tmp_path / "cut.json")
    assert made.kept == len(cut) < made.events == len(whole)
    assert all(event in whole for event in cut)
    inside = [one for one in whole if one["ts"] < end and one["ts"] + one["dur"] > begin]
    assert all(event in cut for event in inside)
    cut_properties, properties = (
        json.loads((tmp_path / "cut.json").read_text()),
        json.loads(gzip.decompress(trace.read_bytes())),
    )
    assert set(cut_properties) == set(properties)


def test_a_kernel_comes_with_the_launch_that_lies_before_the_stretch(tmp_path):
    made = Made()
    made.events += [{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "python"}}]
    made.span("cuda_runtime", "cudaLaunchKernel", 1000.0, 5.0, correlation=7)
    made.span("kernel", "gemm", 2000.0, 50.0, pid=0, tid=7, correlation=7, stream=7)
    made.span("cpu_op", "aten::other", 100.0, 5.0)
    arrow = {"cat": "ac2g", "name": "ac2g", "id": 7}
    made.events += [arrow | {"ph": "s", "pid": 100, "tid": 100, "ts": 1000.0}]
    made.events += [arrow | {"ph": "f", "bp": "e", "pid": 0, "tid": 7, "ts": 2000.0}]
    trace = made.write(tmp_path / "trace.json")
    cutting.write(trace, tmp_path / "cut.json", 1990.0, 2100.0)
    assert [one.get("ph") for one in events_of(tmp_path / "cut.json")] == ["M", "X", "X", "s", "f"]
    with pytest.raises(InputError, match="nothing happens"):
        cutting.write(trace, tmp_path / "none.json", 5000.0, 6000.0)
    assert not (tmp_path / "none.json").exists()


def test_the_cut_of_an_import_is_a_trace_again(tmp_path):
    trace = training(steps=6, kernels=20, loading=20_000).write(tmp_path / "trace.json")
    import_traces([trace], tmp_path / "run")
    folder = cutting.one_trace(tmp_path / "run")
    cutting.write(folder, tmp_path / "cut.json.gz", *cutting.of_step(folder, 3))
    cut = diagnose_traces(tmp_path / "cut.json.gz")
    assert cut.run.steps == 1
    assert {one["name"] for one in events_of(tmp_path / "cut.json.gz")} >= {"aten::gemm_0", "cudaLaunchKernel", "ac2g"}


def test_the_command_on_the_page_cuts_what_the_page_shows(tmp_path):
    trace = training(steps=5, kernels=20).write(tmp_path / "a trace.json")
    picture = diagnose_traces([trace], picture=True).picture
    assert picture is not None
    timeline = picture.timelines[0]
    command = lanes.cut_command(timeline)
    assert command.startswith(f"tracelyze cut '{trace}' --from ")
    begin, end = (str(timeline.begin_us + at) for at in (0, timeline.length_us))
    arguments = ["cut", str(trace), "--from", begin, "--to", end, "-o", str(tmp_path / "cut.json")]
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 0, answer.output
    kernels = [one for one in events_of(tmp_path / "cut.json") if one["cat"] == "kernel"]
    assert {one["ts"] for one in kernels} >= {
        one["ts"]
        for one in events_of(trace)
        if one["cat"] == "kernel" and timeline.begin_us < one["ts"] < timeline.begin_us + timeline.length_us
    }
    assert 20 <= len(kernels) <= 22


@pytest.mark.parametrize(
    ("arguments", "said"),
    [([], "--step N"), (["--from", "3"], "--step N"), (["--step", "99"], "holds the steps"), (["-o", "x.txt"], "")],
)
def test_a_call_that_says_too_little_is_refused(tmp_path, arguments, said):
    trace = training(steps=4).write(tmp_path / "trace.json")
    answer = CliRunner().invoke(app, ["cut", str(trace), *arguments])
    assert isinstance(answer.exception, InputError)
    assert said in str(answer.exception)


def test_several_traces_are_named(tmp_path):
    for rank in (0, 1):
        training(rank=rank, world_size=2).write(tmp_path / f"rank{rank}.json")
    with pytest.raises(InputError, match=r"rank0\.json, rank1\.json"):
        cutting.one_trace(tmp_path)
