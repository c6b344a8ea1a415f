"""Space, inodes, the right to write, or memory are taken from a program: what was recorded is read back and judged."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collectors.conftest import Collect, environment, program, run_plain
from tracelyze import analyzers
from tracelyze.analyzers.recorded.columns import complete_batches
from tracelyze.collectors.system import memory_limits

pytestmark = pytest.mark.starts_programs

CAN_MOUNT = (
    shutil.which("unshare")
    and not subprocess.run(["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True).returncode
)
NEEDS_MOUNT = pytest.mark.skipif(not CAN_MOUNT, reason="this user may not mount in a namespace of its own")


def in_own_mount(mount: str, place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`collect` into `place`/run, after `mount` in a namespace of its own; what it left is copied to `place`-kept."""
    place.mkdir()
    collect = [sys.executable, "-m", "tracelyze", "collect", "--out", f"{place}/run", "--", sys.executable, *words]
    script = f"{mount} && {{ {shlex.join(collect)}; code=$?; cp -r {place}/run {place}-kept; exit $code; }}"
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, env=environment(), timeout=300
    )


@NEEDS_MOUNT
@pytest.mark.parametrize(
    ("mounted", "how"),
    [
        ("size=400k,nr_inodes=100", "much to write"),  # the disk is full amid the training
        ("size=20m,nr_inodes=3", "nothing"),  # no inode for the folder of the process
        ("size=20m,nr_inodes=5", "nothing"),  # for its process.json
        ("size=20m,nr_inodes=9", "nothing"),  # for one of its tables
    ],
)
def test_a_disk_without_space_or_inodes(mounted: str, how: str, tmp_path: Path) -> None:
    plain = run_plain(sys.executable, program("hardship.py"), how, str(tmp_path / "none"))
    place = tmp_path / "disk"
    done = in_own_mount(f"mount -t tmpfs -o {mounted} none {place}", place, program("hardship.py"), how, "none")
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout, "the same loss to the last bit"
    assert done.stderr.count("recording stopped, the program goes on") == 1, done.stderr
    assert "No space left on device" in done.stderr
    assert "steps recorded" not in done.stderr, "some were lost"
    assert how == "nothing" or "[tracelyze] recording stopped at step " in done.stderr
    diagnosis = analyzers.diagnose(Path(f"{place}-kept"))
    told = " ".join([*diagnosis.run.notes, *(check.reason for check in diagnosis.checks)])
    assert "recording stopped" in told or "nothing" in told, told
    assert not [finding.rule for finding in diagnosis.findings if finding.rule in ("crash", "killed")], "it ended well"


@NEEDS_MOUNT
def test_a_run_that_becomes_read_only(tmp_path: Path) -> None:
    plain = run_plain(sys.executable, program("hardship.py"), "nothing", str(tmp_path / "none"))
    place = tmp_path / "disk"
    done = in_own_mount(f"mount --bind {place} {place}", place, program("hardship.py"), "read-only run", "none")
    assert done.stdout == plain.stdout, done.stderr
    assert done.returncode == 0
    assert done.stderr.count("recording stopped, the program goes on") == 1
    assert "Read-only file system" in done.stderr
    diagnosis = analyzers.diagnose(place / "run")
    assert diagnosis.findings == []
    assert diagnosis.run.notes


@NEEDS_MOUNT
def test_a_run_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    mount = f"mount --bind {place} {place} && mount -o remount,ro,bind {place}"
    done = in_own_mount(mount, place, "-c", "print(1)")
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("cp:")]
    assert f"{place}/run: Read-only file system; choose a folder that can be written with --out" in line


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group that allows 600 MB of memory, within our own."""
    for folder in own_groups():
        made = folder / f"tracelyze-test-{os.getpid()}"
        try:
            made.mkdir()
        except OSError:
            continue
        try:
            second = (made / "memory.max").exists()
            (made / ("memory.max" if second else "memory.limit_in_bytes")).write_text("600000000")
            for name, value in (("memory.swap.max", "0"), ("memory.swappiness", "0")):
                if (made / name).exists():
                    (made / name).write_text(value)
            yield made
            return
        except OSError:
            continue
        finally:
            until = time.monotonic() + 10
            while made.exists() and time.monotonic() < until:
                try:
                    made.rmdir()
                except OSError:  # its last process is still being cleared away
                    time.sleep(0.05)
    pytest.skip("this user may not limit memory: no control group could be made")


def own_groups() -> Iterator[Path]:
    if not memory_limits.OF_PROCESS.exists():
        return
    for line in memory_limits.OF_PROCESS.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for mount in ("memory",) if "memory" in controllers.split(",") else () if controllers else ("", "unified"):
            folder = memory_limits.ROOT / mount / path.strip("/")
            if folder.is_dir():
                yield folder


def test_killed_by_the_kernel_for_memory(group: Path, tmp_path: Path) -> None:
    def join() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    run = tmp_path / "run"
    wrapper = [sys.executable, "-m", "tracelyze", "collect", "--out", str(run), "--"]
    done = subprocess.run(
        [*wrapper, sys.executable, program("hardship.py"), "memory used up", "none"],
        capture_output=True,
        text=True,
        env=environment(),
        preexec_fn=join,
        timeout=300,
    )
    assert done.returncode == -9, done.stderr
    (process,) = analyzers.load(run).processes
    assert process.exit.kind == "vanished"
    assert process.facts["host_memory_bytes"] <= 600_000_000
    assert len(process.steps) > 50
    (found,) = [one for one in analyzers.diagnose(run).findings if one.rule == "killed"]
    assert "host memory most likely ran out" in found.title


def test_a_limit_of_any_group_around_ours_counts(tmp_path: Path) -> None:
    of_process = tmp_path / "cgroup"
    of_process.write_text("4:memory:/job/step\n3:cpu,cpuacct:/\n0::/slice/job\n")
    for place, files in {
        "memory/job": {
            "memory.limit_in_bytes": "9000",
            "memory.usage_in_bytes": "5000",
            "memory.stat": "cache 7\ninactive_file 1\ntotal_inactive_file 500\n",
        },
        "memory/job/step": {"memory.limit_in_bytes": str(2**63 - 4096), "memory.usage_in_bytes": "4000"},
        "slice/job": {"memory.max": "max\n", "memory.current": "70\n"},
        "slice": {"memory.max": "8000\n", "memory.current": "7900\n", "memory.stat": "anon 4\ninactive_file 60\n"},
    }.items():
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (tmp_path / place / name).write_text(text)
    found = memory_limits.groups(tmp_path, of_process)
    assert [(group[0].relative_to(tmp_path).as_posix(), memory_limits.limit(group)) for group in found] == [
        ("memory/job", 9000),
        ("slice", 8000),
    ]
    assert [memory_limits.room(group) for group in found] == [4500, 160]
    assert memory_limits.groups(tmp_path, tmp_path / "not there") == []


def test_cut_short_and_judged(collect: Collect, tmp_path: Path) -> None:
    """A power cut leaves any first part of the last file: whole batches are read, and the end is named.

    Every length of a small file: test_stream.py.
    """
    run = collect(sys.executable, program("tiny.py"), "60", "--kill").folder
    (steps,) = run.glob("rank*/steps.arrows")
    whole = steps.read_bytes()
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    cut = copy / steps.relative_to(run)
    counts = {}
    for length in sorted({*range(0, len(whole), 97), *range(len(whole) - 40, len(whole) + 1)}):
        cut.write_bytes(whole[:length])
        rows = [row for batch in complete_batches(cut) for row in batch.column("step").to_pylist()]
        assert rows == list(range(1, len(rows) + 1))
        counts[length] = len(rows)
    assert list(counts.values()) == sorted(counts.values())
    assert counts[0] == 0
    assert counts[len(whole)] == 60
    partly = max(length for length, count in counts.items() if count < 60)
    for length in (1, len(whole) // 2, partly):
        cut.write_bytes(whole[:length])
        (process,) = analyzers.load(copy).processes
        assert len(process.steps) == max(count for before, count in counts.items() if before <= length)
        assert "killed" in {finding.rule for finding in analyzers.diagnose(copy).findings}
