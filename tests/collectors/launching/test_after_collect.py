"""`collect --diagnose` ends with the verdict and the program's own status; an empty recording says why it is empty."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tracelyze
from tests.fork_server import client

TRAINING = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(30):
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
print("trained")
raise SystemExit(7)
"""

SEVERAL = """
import sys, torch
models, optimizers = map(int, sys.argv[1:])
for made in range(models):
    model = torch.nn.Linear(3, 1)
    for kind in range(optimizers):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(20 + made + kind):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).square().mean().backward()
            optimizer.step()
"""


def collect(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tracelyze", "collect", *arguments]
    return client.shared().run(command, os.environ, cwd=folder)


def started(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same in a process that starts as a user's does: the fork server has torch in memory."""
    command = [sys.executable, "-m", "tracelyze", "collect", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_the_verdict_follows_the_program(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    done = collect(tmp_path, "--out", "run", "--diagnose", "--", sys.executable, "train.py")
    assert done.returncode == 7, done.stderr
    assert done.stdout == "trained\n"
    assert "Gradients are never cleared: 29 of 30 steps reused old gradients" in done.stderr
    assert done.stderr.rstrip().endswith("run/diagnosis.html")
    assert (tmp_path / "run" / "diagnosis.html").is_file()


def test_nothing_recorded_says_why(tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text("import torch\nprint(torch.ones(2).sum())\n")
    done = collect(tmp_path, "--out", "run", "--", sys.executable, "look.py")
    assert done.returncode == 0
    assert "[tracelyze] nothing was recorded: torch was imported, but no backward ran" in done.stderr
    quiet = collect(tmp_path, "--quiet", "--", sys.executable, "look.py")
    assert "nothing was recorded" not in quiet.stderr


@pytest.mark.starts_programs
def test_a_program_without_torch_says_so(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import sys\nsys.exit(3)\n")
    said = "[tracelyze] nothing was recorded: the program never imported torch"
    done = started(tmp_path, "--out", "run", "--", sys.executable, "plain.py")
    assert done.returncode == 3
    assert said in done.stderr
    assert "plain.py never imported torch" in tracelyze.diagnose(tmp_path / "run").verdict_reason
    quiet = started(tmp_path, "--quiet", "--out", "quiet", "--", sys.executable, "plain.py")
    assert said not in quiet.stderr
    (tmp_path / "launch.py").write_text("import subprocess, sys\nsubprocess.run([sys.executable, *sys.argv[1:]])\n")
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "look.py").write_text("import torch\n")
    launched = started(tmp_path, "--out", "launched", "--", sys.executable, "launch.py", "train.py")
    assert "30 steps recorded" in launched.stderr
    assert "nothing was recorded" not in launched.stderr
    looked = started(tmp_path, "--out", "looked", "--", sys.executable, "launch.py", "look.py")
    assert "[tracelyze] nothing was recorded: torch was imported, but nothing trained" in looked.stderr


def test_a_wrong_call_and_signals_reach_the_user_as_before(tmp_path: Path) -> None:
    done = collect(tmp_path, "--out", "run", "--diagnose", "--", "no-such-program")
    assert done.returncode == 2
    assert done.stderr.count("no such program") == 1
    (tmp_path / "wait.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(60)\n")
    command = [sys.executable, "-m", "tracelyze", "collect", "-q", "--diagnose", "--", sys.executable, "wait.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "up\n"
        running.send_signal(signal.SIGTERM)
        began = time.monotonic()
        _, said = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGTERM, said
    assert time.monotonic() - began < 50


def test_what_was_recorded_is_said_for_all_trainings(tmp_path: Path) -> None:
    (tmp_path / "several.py").write_text(SEVERAL)
    said = {
        ("1", "1"): "20 steps recorded.",
        ("3", "1"): "3 trainings recorded, 22 steps in the longest.",
        ("1", "3"): "63 steps of 3 optimizers recorded.",
    }
    for arguments, words in said.items():
        done = collect(tmp_path, "--out", "".join(arguments), "--", sys.executable, "several.py", *arguments)
        assert f"[tracelyze] {words} Next: " in done.stderr
    (tmp_path / "called.py").write_text("import torch\ntorch.nn.Linear(2, 1)(torch.ones(2))\n")
    done = collect(tmp_path, "--out", "called", "--", sys.executable, "called.py")
    assert "[tracelyze] nothing was recorded: models were called, but no backward ran" in done.stderr


def test_the_end_is_said_where_the_working_folder_is_gone(tmp_path: Path) -> None:
    (tmp_path / "gone.py").write_text("import os\nos.mkdir('w')\nos.chdir('w')\nos.rmdir('../w')\n" + TRAINING)
    done = collect(tmp_path, "--out", "run", "--", sys.executable, "gone.py")
    assert done.returncode == 7
    assert f"30 steps recorded. Next: tracelyze diagnose {tmp_path / 'run'}" in done.stderr
