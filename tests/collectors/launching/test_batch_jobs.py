"""Several tasks of one batch job record into one run directory, and another job does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.collectors.conftest import environment

pytestmark = pytest.mark.starts_programs


def record(folder: Path, **job: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tracelyze", "collect", "--out", str(folder), "--", sys.executable, "-c", "pass"]
    return subprocess.run(command, capture_output=True, text=True, env=environment(**job), timeout=60)


def test_tasks_of_one_job_share_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for _ in range(2):
        assert record(folder, SLURM_JOB_ID="17").returncode == 0


@pytest.mark.parametrize("other", [{"SLURM_JOB_ID": "18"}, {"SLURM_JOB_ID": "17", "SLURM_RESTART_COUNT": "1"}, {}])
def test_another_job_does_not(other: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert record(folder, SLURM_JOB_ID="17").returncode == 0
    refused = record(folder, **other)
    assert refused.returncode == 2
    assert "is not empty" in refused.stderr
