"""However a program ends, its exit status and its words are its own, and what it did is on disk."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.collectors.conftest import Collect, environment, program, run_plain, run_started
from tracelyze import schema
from tracelyze.analyzers.recorded.run_directory import load
from tracelyze.collectors.storage.writer import EXIT_SECONDS

EXITED = True if hasattr(ctypes.CDLL(None), "on_exit") else None  # whether the C library tells the status
ENDS = [
    "ok",
    "exit",
    "exit in a fork",
    "exit at exit",
    "os._exit",
    "raise",
    "raise-in-except",
    "replaced-hook",
    "handled",
    "own-handler",
    "SIGINT",
]
FATAL = ["SIGTERM", "SIGSEGV", "SIGABRT", "SIGKILL"]


@pytest.mark.parametrize("how", [*ENDS, *FATAL])
def test_status_and_output_are_those_of_plain_python(how: str, collect: Collect) -> None:
    plain = run_plain(sys.executable, program("ending.py"), how)
    collected = collect(sys.executable, program("ending.py"), how)
    assert collected.process.returncode == plain.returncode
    assert collected.process.stdout == plain.stdout
    same = [re.sub("0x[0-9a-f]+", "0x", text) for text in (collected.own_stderr, plain.stderr)]  # addresses of objects
    assert same[0] == same[1], "tracebacks must not show the collector"


@pytest.mark.parametrize(
    ("how", "kind", "code"),
    [
        ("ok", "finished", EXITED and 0),
        ("exit", "finished", EXITED and 3),
        ("os._exit", "finished", 5),
        ("raise", "exception", 1),
        ("replaced-hook", "exception", 1),
        ("handled", "finished", EXITED and 0),
        ("own-handler", "finished", EXITED and 7),
        ("exit in a fork", "finished", EXITED and 4),
        ("exit at exit", "finished", EXITED and 6),
        ("SIGINT", "interrupted", 130),
        ("SIGTERM", "signal", None),
        ("SIGSEGV", "signal", None),
        ("SIGKILL", "vanished", None),
    ],
)
def test_the_end_is_known_afterwards(how: str, kind: str, code: int | None, collect: Collect) -> None:
    if how == "SIGINT" and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        pytest.skip("SIGINT is ignored, as by what a shell starts in the background: no program is interrupted by it")
    done = collect(sys.executable, program("ending.py"), how)
    (process,) = done.run.processes
    assert process.exit.kind == kind
    if code is not None:
        assert done.process.returncode in (code, -2), "it is what the shell sees"
    assert process.exit.code == code
    if how not in FATAL:
        assert len(process.steps) == 200


EARLY = {
    "before the first step": "import torch\nmodel = torch.nn.Linear(2, 1)\nraise KeyboardInterrupt\n",
    "while torch is imported": "import sys\nclass At:\n    def find_spec(self, name, *_):\n"
    "        if name == 'torch.nn':\n            raise KeyboardInterrupt\n"
    "sys.meta_path.insert(0, At())\nimport torch\n",
    "and a command of a prompt": "import code, sys, torch\nsys.ps1 = '> '\n"
    "code.InteractiveInterpreter().runcode(compile('raise KeyboardInterrupt', 'x', 'exec'))\n",
    "and handled": "import torch, sys\ntry:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt:\n    sys.exit(9)\n",
}


@pytest.mark.starts_programs
@pytest.mark.parametrize("when", EARLY)
def test_an_interrupt_before_the_first_step_leaves_the_status_of_the_program(
    when: str, collect_started: Collect, tmp_path: Path
) -> None:
    """What the collector imports at the end must not make the interpreter forget that Ctrl-C ended the program."""
    script = tmp_path / "early.py"
    script.write_text(EARLY[when])
    plain = run_started(sys.executable, str(script))
    done = collect_started(sys.executable, str(script))
    assert done.process.returncode == plain.returncode, done.process.stderr
    for process in done.run.processes:
        assert not EXITED or process.exit.code == {-2: 130}.get(plain.returncode, plain.returncode)


def test_an_exception_is_recorded_with_the_users_line(collect: Collect) -> None:
    (process,) = collect(sys.executable, program("ending.py"), "raise").run.processes
    (event,) = [row for row in process.events.records() if row["kind"] == "exception"]
    assert event["name"] == "RuntimeError"
    assert event["file"].endswith("ending.py")
    assert event["source"] == "return model(x)"
    assert "mat1 and mat2 shapes cannot be multiplied" in event["text"]
    assert "tracelyze" not in event["text"]


def test_an_exception_before_the_first_step_is_recorded(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "early.py"
    script.write_text("import torch\nraise KeyError('learning_rate')\n")
    (process,) = collect(sys.executable, str(script)).run.processes
    assert [row["name"] for row in process.events.records() if row["kind"] == "exception"] == ["KeyError"]


@pytest.mark.starts_programs
def test_nothing_older_than_a_second_is_lost_on_a_kill(tmp_path: Path) -> None:
    """Every step that ended more than a second before is on disk. At random moments: test_nothing_lost.py."""
    counter, folder = tmp_path / "count", tmp_path / "run"
    wrapper = [sys.executable, "-m", "tracelyze", "collect", "--out", str(folder), "--"]
    child = subprocess.Popen(
        [*wrapper, sys.executable, program("ending.py"), "loop", str(counter)],
        env=environment(),
        stderr=subprocess.DEVNULL,
    )
    history: list[tuple[float, int]] = []
    deadline = time.time() + 60
    while not (counter.exists() and counter.stat().st_size) and time.time() < deadline:
        time.sleep(0.01)
    stop = time.time() + 1.7
    while time.time() < stop:
        done, when = counter.read_text().split()
        history.append((float(when), int(done)))
        time.sleep(0.005)
    killed = time.time()
    child.send_signal(signal.SIGKILL)
    child.wait()
    must_be_there = max((done for when, done in history if when < killed - 1.0), default=0)
    (process,) = load(folder).processes
    steps = process.steps["step"]
    assert len(steps) >= must_be_there > 0
    assert list(steps) == list(range(1, len(steps) + 1)), "what is there is complete and in order"
    assert process.exit.kind == "vanished"


def test_a_full_disk_ends_the_recording_and_not_the_training(collect: Collect) -> None:
    """A limit on file size stands in for the full disk: the kernel refuses the write in the same way."""
    limited = (
        "import resource, runpy, sys; sys.argv[1:] = ['ok']; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (32_000, 32_000)); "  # process.json fits, the steps do not
        f"runpy.run_path({program('ending.py')!r}, run_name='__main__')"
    )
    collected = collect(sys.executable, "-c", limited)
    assert collected.process.returncode == 0
    assert collected.process.stdout == "end\n"
    (process,) = collected.run.processes
    stopped = next(collected.folder.glob("rank*/stopped.txt")).read_text()
    assert "too large" in json.loads(stopped)["reason"]
    assert any("recording stopped" in note for note in [*process.notes, *collected.run.notes])
    assert "recording stopped, the program goes on" in collected.process.stderr


def test_a_slow_disk_delays_no_step_and_its_rows_are_all_there(collect_started: Collect) -> None:
    """The program ends while the first rows are being written: what waits behind them is written, not converted."""
    collected = collect_started(sys.executable, program("slow_disk.py"), "0.15")
    assert collected.process.returncode == 0
    (process,) = collected.run.processes
    assert (len(process.steps), process.exit.kind) == (60, "finished")
    operations = json.loads(collected.process.stdout)
    assert max(seconds for _, _, seconds in operations) > EXIT_SECONDS, "slow enough to pass the deadline"
    ours = [(name, seconds) for name, thread, seconds in operations if thread == "MainThread"]
    assert all(seconds > 0 for _, seconds in ours), "no step waits for the disk"
    assert [name for name, _ in ours if name == "fsync"] == [], "no stream is converted"
    assert len(ours) <= 2 * len(schema.TABLES)


@pytest.mark.starts_programs
def test_a_folder_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        blocked = Path("/proc/tracelyze-cannot-write-here")
    else:
        blocked = tmp_path / "locked" / "run"
        blocked.parent.mkdir(mode=0o500)
    wrapper = [sys.executable, "-m", "tracelyze", "collect", "--out", str(blocked), "--"]
    command = [*wrapper, sys.executable, "-c", "print(1)"]
    process = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert process.returncode == 2
    assert len(process.stderr.splitlines()) == 1
    assert str(blocked) in process.stderr
    assert "--out" in process.stderr
