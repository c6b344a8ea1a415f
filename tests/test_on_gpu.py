"""benchmarks/on_gpu.py: its logic on a CPU, in small."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks import on_gpu
from tests.fork_server import client

ROOT = Path(__file__).parents[1]
NEED_GPU = {"synchronisation", "memory", "nvml", "graphs"}
CHEAP = (
    "plain",
    "synchronisation",
    "device_wait",
    "out_of_memory",
    "microbatches",
    "scaler",
    "nvml",
    "windows",
    "graphs",
    "cost_5_ms",
)


def forked(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    return client.shared().run(command, environment, timeout=seconds)


@pytest.mark.slow
@pytest.mark.starts_programs
def test_the_logic_holds_on_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    answers = on_gpu.answered(CHEAP, "cpu", 40, on_gpu.SECONDS, forked)
    assert list(answers) == list(CHEAP)
    told = {name: answer["status"] for name, answer in answers.items()}
    assert told == {name: "needs a GPU" if name in NEED_GPU else "ok" for name in CHEAP}, answers
    assert "Out of device memory" in answers["out_of_memory"]["title"]
    assert answers["cost_5_ms"]["blocks"] == 4


@pytest.mark.starts_programs
def test_no_check_begins_after_the_time_is_over(tmp_path: Path) -> None:
    out = tmp_path / "answers.json"
    arguments = ["--device", "cpu", "--seconds", "0", "--out", str(out)]
    command = [sys.executable, str(ROOT / "benchmarks/on_gpu.py"), *arguments]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, check=True)
    assert b"no time left" in done.stderr
    assert {answer["status"] for answer in json.loads(out.read_text())["checks"].values()} == {"no time left"}
