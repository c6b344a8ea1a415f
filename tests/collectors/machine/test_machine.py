"""The process, its children and its machine seen from outside; stacks of a training that hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.conftest import Collect, program
from tracelyze.collectors.signals.machine.devices import reading
from tracelyze.collectors.system import processes

psutil = pytest.importorskip("psutil")
LINUX = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")


@LINUX
def test_both_ways_of_asking_agree() -> None:
    proc, other = processes.Proc(), processes.Psutil()
    pid = os.getpid()
    one, two = proc.process(pid), other.process(pid)
    assert one["rss"] == pytest.approx(two["rss"], rel=0.05)
    assert one["cpu_seconds"] == pytest.approx(two["cpu_seconds"], abs=1.0)
    shares, same = proc.shares(pid), other.shares(pid)
    assert shares["pss"] == pytest.approx(same["pss"], rel=0.05)
    assert shares["uss"] == pytest.approx(same["uss"], rel=0.05)
    assert shares["uss"] <= shares["pss"] <= one["rss"] * 1.05
    assert proc.machine()["host_available"] <= psutil.virtual_memory().total
    if Path("/proc/self/schedstat").exists():
        assert 0 <= one["delayed"] <= proc.process(pid)["delayed"]
    assert "machine_cpu" not in proc.machine() or 0 <= proc.machine().get("machine_cpu", 0) <= 1


@pytest.mark.starts_programs
@LINUX
@pytest.mark.parametrize("kind", [processes.Proc, processes.Psutil])
def test_descendants_are_found_and_what_has_ended_raises(kind: Any) -> None:
    reader = kind()
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 30
        while len(found := reader.descendants(child.pid)) < 1 and time.monotonic() < deadline:
            pass
        assert len(found) == 1
        assert set(found) | {child.pid} <= set(reader.descendants(os.getpid()))
        assert reader.state(child.pid)["state"].startswith(("S", "s", "R", "r", "D", "d"))
    finally:
        child.communicate(b"\n")
    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        reader.process(child.pid)


def test_memory_and_faults_of_a_process_that_allocates(collect: Collect) -> None:
    done = collect(sys.executable, program("watched.py"), "allocate")
    (process,) = done.run.processes
    rows = list(process.samples.records())
    assert len(rows) >= 3
    assert rows[-1]["host_rss"] - rows[0]["host_rss"] > 0.8 * 100e6
    assert rows[-1]["faults_minor"] >= rows[0]["faults_minor"]
    assert rows[0]["children"] == 0
    delayed = [row["delayed"] for row in rows if row["delayed"] is not None]
    assert delayed == sorted(delayed)
    assert rows[0]["host_uss"] <= rows[0]["host_pss"] <= rows[0]["host_rss"] * 1.05
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)


def test_loader_workers_are_told_from_the_process(collect: Collect) -> None:
    done = collect(sys.executable, program("watched.py"), "slow-worker")
    (process,) = done.run.processes
    rows = list(process.samples.records())
    assert max(row["children"] for row in rows) == 2
    assert any(row["children_uss"] and 0 < row["children_uss"] <= row["children_pss"] for row in rows)
    (wait, *_) = [row for row in process.events.records() if row["kind"] == "loader-wait"]
    workers = json.loads(wait["text"])
    assert len(workers) == 2
    assert all(worker["state"] == "S" for worker in workers), "both sleep: one has nothing to do"
    assert wait["value"] >= 0.5


def test_a_training_that_hangs_leaves_its_stack_and_sampled_lines(collect: Collect) -> None:
    done = collect(sys.executable, program("watched.py"), "hang")
    (process,) = done.run.processes
    first, *more = [row for row in process.events.records() if row["kind"] == "stacks"]
    assert first["value"] >= 0.5
    assert first["source"] == "threading.Event().wait(SECONDS)"
    assert "stuck_forever" in first["text"]
    assert "tracelyze/collectors" not in first["text"]
    assert all(row["value"] >= 2 * first["value"] for row in more), "with pauses that double"
    assert any("thread prefetch: ended" in row["text"] for row in more)
    sampled = {row["site"]: row["source"] for row in process.sites.records() if row["role"] == "sampled"}
    lines = [sampled[row["site"]] for row in process.samples.records() if row["site"] is not None]
    assert lines.count("threading.Event().wait(SECONDS)") >= 2
    if Path("/proc/self/syscall").exists():
        waits = [row["waits"] for row in process.samples.records() if row["waits"]]
        assert waits.count("futex timed") >= 2, "it would have given up"
        alive = "thread prefetch (futex timed):" in first["text"]
        assert alive or "thread prefetch: ended" in first["text"], "on a busy machine it ended before the first look"


def test_signals_can_be_switched_off(collect: Collect) -> None:
    off = [part for name in ("machine", "stacks", "loader_processes") for part in ("--signal", f"{name}=off")]
    done = collect(sys.executable, program("watched.py"), "hang", options=tuple(off))
    (process,) = done.run.processes
    assert len(process.samples) == 0
    assert not [row for row in process.events.records() if row["kind"] == "stacks"]


class _Driver:
    """What nvidia-ml-py answers for a device that does not know its power."""

    class NVMLError(Exception):
        pass

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlDeviceGetName": b"NVIDIA H200",
            "nvmlDeviceGetUtilizationRates": type("Rates", (), {"gpu": 87, "memory": 40}),
            "nvmlDeviceGetMemoryInfo": type("Memory", (), {"used": 3 * 2**30, "total": 140 * 2**30}),
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetClockInfo": 1500,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x1 | 0x4 | 0x40,
        }

        def answer(*_arguments: Any) -> Any:
            if name not in answers:
                raise self.NVMLError("not supported")
            return answers[name]

        return answer


def test_what_a_device_does_not_support_is_left_out() -> None:
    assert reading(_Driver(), object()) == {
        "name": "NVIDIA H200",
        "busy": 0.87,
        "memory_used": 3 * 2**30,
        "memory_total": 140 * 2**30,
        "temperature": 61,
        "clock": 1500,
        "clock_max": 1980,
        "slowed_by": "power cap, hardware thermal slowdown",
    }
