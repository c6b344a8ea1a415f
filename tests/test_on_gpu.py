"""benchmarks/on_gpu.py: its logic on a CPU, in small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEED_GPU = {"synchronisation", "memory", "nvml", "graphs"}
CHEAP = ("plain", "synchronisation", "device_wait", "out_of_memory", "scaler", "nvml", "windows", "graphs", "cost_5_ms")


@pytest.mark.slow
@pytest.mark.starts_programs
def test_the_logic_holds_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "answers.json"
    only = [word for name in CHEAP for word in ("--only", name)]
    command = [
        sys.executable,
        str(ROOT / "benchmarks/on_gpu.py"),
        "--device",
        "cpu",
        "--steps",
        "40",
        "--out",
        str(out),
    ]
    done = subprocess.run([*command, *only], capture_output=True, text=True, cwd=tmp_path, check=False)
    answers = json.loads(out.read_text())["checks"]
    assert list(answers) == list(CHEAP)
    told = {name: answer["status"] for name, answer in answers.items()}
    assert told == {name: "needs a GPU" if name in NEED_GPU else "ok" for name in CHEAP}, done.stderr
    assert done.returncode == 0
    assert "Out of device memory" in answers["out_of_memory"]["title"]
    assert answers["cost_5_ms"]["blocks"] == 4


@pytest.mark.starts_programs
def test_no_check_begins_after_the_time_is_over(tmp_path: Path) -> None:
    out = tmp_path / "answers.json"
    command = [
        sys.executable,
        str(ROOT / "benchmarks/on_gpu.py"),
        "--device",
        "cpu",
        "--seconds",
        "0",
        "--out",
        str(out),
    ]
    subprocess.run(command, capture_output=True, cwd=tmp_path, check=True)
    assert {answer["status"] for answer in json.loads(out.read_text())["checks"].values()} == {"no time left"}
