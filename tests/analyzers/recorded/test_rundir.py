"""Run directories in every state that a program can leave them in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracelyze import schema
from tracelyze.analyzers import compact, diagnose, load
from tracelyze.analyzers.recorded.columns import StreamPart
from tracelyze.errors import InputError

ARROW = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
}
BOOT = Path("/proc/sys/kernel/random/boot_id")
linux = pytest.mark.skipif(not BOOT.exists(), reason="whether a process lives is read from /proc")


def arrow(name: str, columns: dict[str, list]) -> pa.Table:
    """Columns as an Arrow table with the types of the format."""
    spec = schema.table(name)
    return pa.table({key: pa.array(values, ARROW[spec.column(key).type]) for key, values in columns.items()})


def steps(first: int, count: int) -> pa.Table:
    numbers = list(range(first, first + count))
    return arrow("steps", {"optimizer": [0] * count, "step": numbers, "loss": [1.0 / n for n in numbers]})


def stream(path: Path, batches: list[pa.Table]) -> bytes:
    """Write an Arrow stream of these batches and return its bytes."""
    with path.open("wb") as file, pa.ipc.new_stream(file, batches[0].schema) as writer:
        for batch in batches:
            writer.write_table(batch)
    return path.read_bytes()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory with one process folder, whose process is long gone."""
    folder = tmp_path / "run"
    process = folder / "rank00000-attempt0-pid4711"
    process.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"schema_version": 1, "command": ["python", "train.py"]}))
    (process / "process.json").write_text(json.dumps({"schema_version": 1, "pid": 4711, "boot_id": "other", "rank": 0}))
    return folder


def only(run: Path) -> Path:
    return next(path for path in run.iterdir() if path.is_dir())


def test_parts_are_read_in_order(run: Path) -> None:
    pq.write_table(steps(1, 10), only(run) / "steps.parquet")
    pq.write_table(steps(11, 10), only(run) / "steps-00001.parquet")
    stream(only(run) / "steps-00002.arrows", [steps(21, 5), steps(26, 5)])
    process = load(run).processes[0]
    assert process.steps["step"].tolist() == list(range(1, 31))
    assert load(run).manifest["command"] == ["python", "train.py"]


def test_null_is_not_measured_and_nan_is_nan(run: Path) -> None:
    table = arrow("steps", {"step": [1, 2, 3], "loss": [1.0, None, float("nan")], "skipped": [True, None, False]})
    pq.write_table(table, only(run) / "steps.parquet")
    read = load(run).processes[0].steps
    assert read.known("loss").tolist() == [True, False, True]
    assert np.isnan(read["loss"]).tolist() == [False, True, True]
    assert read["skipped"][[0, 2]].tolist() == [1.0, 0.0]
    assert not read.has("grad_norm")
    assert len(read["grad_norm"]) == 3


@given(cut=st.floats(0, 1))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_stream_cut_at_any_byte_keeps_its_complete_batches(tmp_path: Path, cut: float) -> None:
    whole = stream(tmp_path / "whole.arrows", [steps(1 + 7 * index, 7) for index in range(8)])
    path = tmp_path / "cut.arrows"
    path.write_bytes(whole[: int(cut * len(whole))])
    part = StreamPart(path)
    assert part.rows % 7 == 0
    if part.rows:
        assert part.column("step").to_pylist() == list(range(1, part.rows + 1))
    if cut == 1.0:
        assert part.rows == 56


@given(noise=st.binary(min_size=1, max_size=200))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_stream_with_a_torn_tail_keeps_what_came_before(tmp_path: Path, noise: bytes) -> None:
    path = tmp_path / "torn.arrows"
    whole = stream(path, [steps(1, 7), steps(8, 7)])
    path.write_bytes(whole[:-8] + noise)
    assert StreamPart(path).rows >= 14


def test_a_stream_without_schema_is_empty(run: Path) -> None:
    (only(run) / "steps.arrows").write_bytes(b"")
    (only(run) / "evals.arrows").write_bytes(b"\xff\xff\xff\xff\x10")
    process = load(run).processes[0]
    assert (len(process.steps), len(process.evals)) == (0, 0)


def test_the_stream_of_a_dead_process_becomes_parquet(run: Path) -> None:
    path = only(run) / "steps.arrows"
    path.write_bytes(stream(path, [steps(1, 7), steps(8, 7)])[:-40])
    before = load(run).processes[0].steps["step"].tolist()
    assert not path.exists()
    assert pq.read_table(only(run) / "steps.parquet")["step"].to_pylist() == before
    assert load(run).processes[0].steps["step"].tolist() == before
    assert sorted(file.name for file in only(run).iterdir()) == ["process.json", "steps.parquet"]


def test_compact_finishes_an_interrupted_conversion(run: Path) -> None:
    folder = only(run)
    stream(folder / "steps.arrows", [steps(1, 14)])
    (folder / "steps.parquet").write_bytes(b"PAR1 half")
    assert len(load(run).processes[0].steps) == 14
    stream(folder / "steps.arrows", [steps(1, 14)])  # renamed, but the stream was not deleted any more
    compact(run)
    assert not (folder / "steps.arrows").exists()
    assert len(load(run).processes[0].steps) == 14


def test_a_folder_that_cannot_be_written_is_read_all_the_same(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream(only(run) / "steps.arrows", [steps(1, 14)])

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr(pq, "ParquetWriter", refuse)
    assert len(load(run).processes[0].steps) == 14
    assert (only(run) / "steps.arrows").exists()


def identity(pid: int) -> dict[str, object]:
    start = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return {"schema_version": 1, "pid": pid, "boot_id": BOOT.read_text().strip(), "pid_start": int(start), "rank": 0}


@pytest.mark.starts_programs
@linux
def test_a_living_process_is_running_and_its_stream_is_left_alone(run: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        (only(run) / "process.json").write_text(json.dumps(identity(child.pid)))
        stream(only(run) / "steps.arrows", [steps(1, 14)])
        process = load(run).processes[0]
        assert process.exit.kind == "running"
        assert len(process.steps) == 14
        assert (only(run) / "steps.arrows").exists()
    finally:
        child.kill()
        child.wait()
    assert load(run).processes[0].exit.kind == "vanished"
    assert not (only(run) / "steps.arrows").exists()


@linux
def test_another_process_with_the_same_pid_is_not_the_one(run: Path) -> None:
    facts = identity(os.getpid()) | {"pid_start": 1}
    (only(run) / "process.json").write_text(json.dumps(facts))
    assert load(run).processes[0].exit.kind == "vanished"


@pytest.mark.parametrize(
    ("events", "signals", "kind", "detail"),
    [
        ({"kind": ["exit"], "name": ["finished"], "value": [0.0], "text": [None]}, "", "finished", ""),
        ({"kind": ["exit"], "name": ["interrupted"], "value": [130.0], "text": [None]}, "", "interrupted", ""),
        ({"kind": ["exit"], "name": ["os._exit"], "value": [3.0], "text": [None]}, "", "finished", "ended by os._exit"),
        (
            {"kind": ["exception", "exit"], "name": ["ValueError", "exception"], "value": [None, 1.0],
             "text": ["Traceback\nValueError: bad", None]}, "", "exception", "ValueError: bad",
        ),
        ({}, "Fatal Python error: Segmentation fault\n\nStack", "signal", "Fatal Python error: Segmentation fault"),
        ({}, "   \n", "vanished", "the process left no exit record"),
        (
            {}, 'Stack (most recent call first):\n  File "/home/x/train.py", line 12 in main\n', "signal",
            "asked to terminate (SIGTERM), in main at line 12 of train.py",
        ),
        (
            {}, ('Stack (most recent call first):\n  File "<frozen importlib._bootstrap>", line 241 in load\n'
                 '  File "/home/x/train.py", line 12 in main\n'), "signal",
            "asked to terminate (SIGTERM), in main at line 12 of train.py",
        ),
        (
            {}, ('Stack (most recent call first):\n'
                 '  File "/lib/python3/torch/distributed/distributed_c10d.py", line 9 in all_reduce\n'
                 '  File "/home/x/train.py", line 12 in main\n'), "signal",
            "asked to terminate (SIGTERM) in a collective, in main at line 12 of train.py",
        ),
        (
            {}, ('Stack (most recent call first):\n  File "/lib/python3/pdb.py", line 3 in interaction\n'
                 '  File "/home/x/train.py", line 12 in main\n'), "signal",
            "asked to terminate (SIGTERM) in a debugger, in main at line 12 of train.py",
        ),
        (  # from a thread of Gloo, which runs no Python: the main thread is the last one
            {}, ('Fatal Python error: Aborted\n\nThread 0x01 (most recent call first):\n'
                 '  File "/lib/python3/threading.py", line 3 in wait\n\nThread 0x02 (most recent call first):\n'
                 '  File "/lib/python3/torch/distributed/distributed_c10d.py", line 9 in all_reduce\n'
                 '  File "/home/x/train.py", line 12 in main\n'), "signal",
            "Fatal Python error: Aborted in a library's thread in a collective, in main at line 12 of train.py",
        ),
        (
            {}, ('Fatal Python error: Segmentation fault\n\nCurrent thread 0x01 (most recent call first):\n'
                 '  File "/home/x/train.py", line 7 in read\n\nThread 0x02 (most recent call first):\n'
                 '  File "/home/x/train.py", line 12 in main\n'), "signal",
            "Fatal Python error: Segmentation fault, in read at line 7 of train.py",
        ),
        (  # a launcher ends the other ranks as soon as one has failed, while this one is on its way out
            {"kind": ["exception"], "name": ["RuntimeError"], "value": [None], "text": ["RuntimeError: bad"]},
            "Stack (most recent call first):\n", "exception", "RuntimeError: bad",
        ),
        (
            {"kind": ["exception"], "name": ["RuntimeError"], "value": [None], "text": ["RuntimeError: bad"]},
            "Fatal Python error: Aborted\n", "signal", "Fatal Python error: Aborted",
        ),
    ],
)  # fmt: skip
def test_how_a_process_ended(run: Path, events: dict, signals: str, kind: str, detail: str) -> None:
    if events:
        pq.write_table(arrow("events", events), only(run) / "events.parquet")
    (only(run) / "signals.txt").write_text(signals)
    end = load(run).processes[0].exit
    assert (end.kind, end.detail) == (kind, detail)


def test_recording_that_stopped_early_is_a_note(run: Path) -> None:
    (only(run) / "stopped.txt").write_text("no space left on device" + " " * 1000)
    pq.write_table(steps(1, 30), only(run) / "steps.parquet")
    assert load(run).notes == ["recording stopped at step 30: no space left on device"]


def test_ranks_and_attempts_are_kept_apart(run: Path) -> None:
    pq.write_table(steps(1, 3), only(run) / "steps.parquet")
    for name in ("rank00001-attempt0-pid5", "rank00001-attempt1-pid6"):
        (run / name).mkdir()
        pq.write_table(steps(1, 5), run / name / "steps.parquet")
    processes = load(run).processes
    assert [(p.rank, p.attempt, len(p.steps)) for p in processes] == [(0, 0, 3), (1, 0, 5), (1, 1, 5)]
    facts = diagnose(run).run
    assert (facts.ranks, facts.steps) == (2, 5)


def test_unknown_columns_are_ignored_and_other_widths_are_read(run: Path) -> None:
    table = pa.table(
        {"step": pa.array([1, 2], pa.int32()), "loss": pa.array([1.0, 2.0], pa.float32()), "new": ["a", "b"]}
    )
    pq.write_table(table, only(run) / "steps.parquet")
    read = load(run).processes[0].steps
    assert (read["step"].tolist(), read["loss"].tolist()) == ([1.0, 2.0], [1.0, 2.0])


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        diagnose(path)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_what_is_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "absent")
    assert "empty folder" in refusal(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    assert "no run directory" in refusal(tmp_path)
    assert "a file" in refusal(tmp_path / "notes.txt")


def test_damaged_files_are_refused_in_one_line(run: Path) -> None:
    path = only(run) / "steps.parquet"
    path.write_bytes(b"not a parquet file at all")
    assert "steps.parquet" in refusal(run)
    pq.write_table(pa.table({"step": ["one", "two"]}), path)
    assert "column step is string, not int64" in refusal(run)
    path.unlink()
    (run / "run.json").write_text('{"schema_version": 1, "comm')
    assert "half-written" in refusal(run)
    (run / "run.json").write_text('{"schema_version": 99}')
    assert "upgrade tracelyze" in refusal(run)


def test_a_damaged_page_is_refused_and_no_rule_swallows_it(run: Path) -> None:
    path = only(run) / "steps.parquet"
    random = np.random.default_rng(0)
    pq.write_table(arrow("steps", {"step": list(range(2000)), "loss": random.normal(0, 1, 2000).tolist()}), path)
    data = bytearray(path.read_bytes())
    data[200:15000] = bytes(14800)
    path.write_bytes(bytes(data))
    assert "steps.parquet" in refusal(run)


def test_a_run_in_which_nothing_trained_says_so(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"schema_version": 1, "command": ["python", "data.py"]}))
    seen = {"argv": ["data.py"], "torch": True, "forwards": 12, "backwards": 0, "steps": 0, "error": None}
    (tmp_path / "seen-4711.json").write_text(json.dumps(seen))
    diagnosis = diagnose(tmp_path)
    assert diagnosis.findings == []
    assert {check.status for check in diagnosis.checks} == {"skipped"}
    assert all("12 forward" in check.reason for check in diagnosis.checks)
    assert diagnosis.run.notes[0].startswith("no training that can be followed was seen: data.py")


def test_a_crash_before_the_first_step_is_told(run: Path) -> None:
    events = {
        "kind": ["exception", "exit"],
        "name": ["FileNotFoundError", "exception"],
        "step": [0, 0],
        "text": ["FileNotFoundError: data.csv", None],
    }
    pq.write_table(arrow("events", events), only(run) / "events.parquet")
    diagnosis = diagnose(run)
    assert [finding.rule for finding in diagnosis.findings] == ["crash"]
    assert "before the first optimizer step" in diagnosis.findings[0].summary


def test_a_long_run_is_read_by_column(run: Path) -> None:
    count = 200_000
    table = arrow("steps", {"optimizer": [0] * count, "step": list(range(1, count + 1)), "loss": [1.0] * count})
    pq.write_table(table, only(run) / "steps.parquet", row_group_size=10_000)
    process = load(run).processes[0]
    begin = time.process_time()
    assert process.steps["loss"].sum() == count
    assert not process.steps.has("grad_norm")
    assert time.process_time() >= begin
    assert set(process.steps._cache) == {"loss", "grad_norm"}


def test_a_process_that_could_write_no_more_than_a_reason_is_told(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"schema_version": 1, "command": ["python", "train.py"]}))
    folder = tmp_path / "rank00000-attempt0-pid4711"
    folder.mkdir()
    (note,) = diagnose(tmp_path).run.notes
    assert "seen: a process began to record and could write nothing" in note, "no descriptor was free"
    stopped = {"step": 0, "reason": "OSError: [Errno 27] File too large", "end": "finished", "code": None}
    (folder / "stopped.txt").write_text(json.dumps(stopped) + " " * 900)
    diagnosis = diagnose(tmp_path)
    assert diagnosis.run.notes[0] == "recording stopped at step 0: OSError: [Errno 27] File too large"
    assert not any("imported torch" in note for note in diagnosis.run.notes)
    assert diagnosis.verdict_reason.startswith("No training that can be followed was seen: ")
    assert (diagnosis.verdict, diagnosis.findings, diagnosis.run.exit.kind) == ("unknown", [], "finished")
