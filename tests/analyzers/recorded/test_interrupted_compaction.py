"""Whatever interrupts the compaction of a run, and whoever else reads at the time, no row is lost or doubled."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tracelyze import schema
from tracelyze.analyzers import compact, diagnose, load
from tracelyze.analyzers.recorded.columns import complete_batches
from tracelyze.analyzers.recorded.exits import STILL_SECONDS

PARTS, BATCHES, ROWS = 4, 5, 40
BOOT = Path("/proc/sys/kernel/random/boot_id")

# Compacts copies of a run, one a line of stdin ("FOLDER CALL DELAY"), each in a forked child that is killed right
# before its CALL-th file operation in the folder, or after DELAY seconds. Prints whether the child was killed.
COMPACTOR = """
import os, signal, sys, time
import pyarrow.parquet, pyarrow.ipc
from tracelyze import schema
from tracelyze.analyzers import compact
from tracelyze.analyzers.recorded import run_directory, compaction
pyarrow.set_cpu_count(1); pyarrow.set_io_thread_count(1)
for line in sys.stdin:
    folder, call, delay = line.rsplit(" ", 2)
    child = os.fork()
    if child == 0:
        left = int(call)
        def watch(event, args):
            global left
            if event in ("open", "os.rename", "os.remove", "os.listdir", "os.scandir") and folder in str(args[0]):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        if left:
            sys.addaudithook(watch)
        compact(folder)
        os._exit(0)
    if float(delay):
        time.sleep(float(delay))
        os.kill(child, signal.SIGKILL)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """A run of a dead process with its steps in several streams, the last of which ends in half a batch."""
    run = tmp_path / "template"
    process = run / "rank00000-attempt0-pid4711"
    process.mkdir(parents=True)
    (run / "run.json").write_text('{"schema_version": 1}')
    (process / "process.json").write_text('{"schema_version": 1, "pid": 4711, "rank": 0}')
    numbers = iter(range(1, PARTS * BATCHES * ROWS + 1))
    for part in range(PARTS):
        path = process / (f"steps-{part:05d}.arrows" if part else "steps.arrows")
        write(path, [[next(numbers) for _ in range(ROWS)] for _ in range(BATCHES)])
    with path.open("ab") as file:
        file.write(b"\xff\xff\xff\xff\x10\x00\x00\x00half a batch")
    return run


def write(path: Path, batches: list[list[int]]) -> None:
    tables = [
        pa.table({"step": pa.array(batch, pa.int64()), "loss": pa.array([1.0 / n for n in batch])}) for batch in batches
    ]
    with path.open("wb") as file, pa.ipc.new_stream(file, tables[0].schema) as writer:
        for batch in (table.to_batches()[0] for table in tables):
            writer.write_batch(batch, custom_metadata={schema.CHECKSUM: schema.checksum(batch)})


def steps_of(run: Path) -> list[int]:
    (process,) = load(run).processes
    return [int(step) for step in process.steps["step"]]


ALL = list(range(1, PARTS * BATCHES * ROWS + 1))


@pytest.mark.starts_programs
def test_a_compaction_that_is_killed_anywhere_loses_nothing(template: Path, tmp_path: Path) -> None:
    """Killed before each of its file operations, and after each of 60 delays; then read, twice."""
    points = [(call, 0.0) for call in range(1, 61)] + [(0, 0.0004 * n) for n in range(1, 61)]
    copies = [tmp_path / f"copy{index}" for index in range(len(points))]
    for copy in copies:
        shutil.copytree(template, copy)
    lines = "".join(f"{copy} {call} {delay}\n" for copy, (call, delay) in zip(copies, points, strict=True))
    done = subprocess.run(
        [sys.executable, "-c", COMPACTOR], input=lines, capture_output=True, text=True, timeout=300, check=True
    )
    killed = [int(line) != 0 for line in done.stdout.splitlines()]
    assert sum(killed) >= 40, "most of them must really be interrupted"
    assert not all(killed)
    for copy in copies:
        assert steps_of(copy) == ALL
        assert steps_of(copy) == ALL, "what the first reader made of it"
        left = sorted(path.name for path in (copy / "rank00000-attempt0-pid4711").iterdir())
        assert left == ["process.json", *(f"steps-{part:05d}.parquet" for part in range(1, PARTS)), "steps.parquet"]


@pytest.mark.starts_programs
def test_readers_at_the_same_time(template: Path) -> None:
    program = (
        "import sys; from tracelyze.analyzers import load\nsys.stdin.readline()\n"
        "steps = [int(s) for s in load(sys.argv[1]).processes[0].steps['step']]\n"
        f"assert steps == list(range(1, {len(ALL) + 1})), len(steps)"
    )
    command = [sys.executable, "-c", program, str(template)]
    readers = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    time.sleep(0.5)  # not needed for the outcome: the more of them have started, the more they meet
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write("\n")
        reader.stdin.flush()
    for reader in readers:
        _, error = reader.communicate(timeout=60)
        assert reader.returncode == 0, error
    assert steps_of(template) == ALL


def test_a_stream_that_is_deleted_while_it_is_read_is_read_to_its_end(template: Path) -> None:
    """Another reader has made a table of it meanwhile."""
    stream = template / "rank00000-attempt0-pid4711" / "steps.arrows"
    batches = complete_batches(stream)
    rows = next(batches).num_rows
    stream.unlink()
    assert rows + sum(batch.num_rows for batch in batches) == BATCHES * ROWS


def test_a_run_that_is_being_written_elsewhere_is_read_and_left_alone(template: Path) -> None:
    """On a login node, the process of a compute node cannot be seen; its streams are its own while they grow."""
    process = template / "rank00000-attempt0-pid4711"
    facts = {"schema_version": 1, "pid": 4711, "rank": 0, "boot_id": "other", "host": "compute-17"}
    (process / "process.json").write_text(json.dumps(facts))
    before = sorted(path.name for path in process.iterdir())
    assert steps_of(template) == ALL
    compact(template)
    assert sorted(path.name for path in process.iterdir()) == before
    assert load(template).processes[0].exit.kind == "running"

    long_ago = time.time() - 2 * STILL_SECONDS
    for path in process.glob("*.arrows"):
        os.utime(path, (long_ago, long_ago))
    assert load(template).processes[0].exit.kind == "vanished"
    assert not list(process.glob("*.arrows"))
    assert steps_of(template) == ALL


@pytest.mark.skipif(not BOOT.exists(), reason="containers are told apart by /proc")
def test_another_container_of_this_machine_cannot_be_asked_either(template: Path) -> None:
    process = template / "rank00000-attempt0-pid4711"
    facts = {"pid": 2**22 + 1, "rank": 0, "boot_id": BOOT.read_text().strip(), "host": platform.node()}
    (process / "process.json").write_text(json.dumps(facts | {"pid_namespace": "pid:[1]"}))
    assert load(template).processes[0].exit.kind == "running"
    (process / "process.json").write_text(json.dumps(facts))
    assert load(template).processes[0].exit.kind == "vanished"


def test_a_power_cut_anywhere_leaves_the_rows_before_it(template: Path, tmp_path: Path) -> None:
    """The last stream cut at 100 places, and with zeros for what had not reached the disk at 100 more."""
    process = template / "rank00000-attempt0-pid4711"
    last = process / f"steps-{PARTS - 1:05d}.arrows"
    whole = last.read_bytes()
    before = len(ALL) - BATCHES * ROWS
    seen = set()
    for index in range(200):
        copy = tmp_path / "cut"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(template, copy)
        cut = len(whole) - index if index < 10 else (index * 7919) % len(whole)
        tail = bytes(len(whole) - cut) if index % 2 else b""
        (copy / process.name / last.name).write_bytes(whole[:cut] + tail)
        read = steps_of(copy)
        assert read == ALL[: len(read)]
        assert len(read) >= before
        seen.add(len(read))
    assert seen == {before + batch * ROWS for batch in range(BATCHES + 1)}


def test_files_of_zeros_are_files_that_are_not_there(template: Path) -> None:
    (template / "run.json").write_bytes(bytes(300))
    (template / "rank00000-attempt0-pid4711/process.json").write_bytes(b"")
    diagnosis = diagnose(template)
    assert diagnosis.run.steps == len(ALL)
