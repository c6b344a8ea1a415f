"""Run real programs under the collector, and read back what they left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tracelyze.analyzers.recorded.run import Run
from tracelyze.analyzers.recorded.run_directory import load

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Collected:
    """A finished program and the run directory that it left."""

    process: subprocess.CompletedProcess[str]
    folder: Path

    @property
    def run(self) -> Run:
        return load(self.folder)

    @property
    def own_stderr(self) -> str:
        """What the program itself wrote to stderr."""
        lines = self.process.stderr.splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("[tracelyze]"))


Collect = Callable[..., Collected]


def run_plain(*command: str, **options: object) -> subprocess.CompletedProcess[str]:
    """The same program without the collector."""
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300, **options)  # type: ignore[call-overload,no-any-return]


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TRACELYZE", "PYTHONWARNINGS"))}
    return kept | {"OMP_NUM_THREADS": "1"} | more


@pytest.fixture
def collect(tmp_path: Path) -> Collect:
    """`collect("python", "x.py", ...)`: the program under `tracelyze collect`, run to its end."""

    def start(
        *command: str, env: dict[str, str] | None = None, options: tuple[str, ...] = (), **more: object
    ) -> Collected:
        folder = tmp_path / f"run{len(list(tmp_path.glob('run*')))}"
        wrapper = [sys.executable, "-m", "tracelyze", "collect", "--out", str(folder), *options, "--", *command]
        process = subprocess.run(
            wrapper, capture_output=True, text=True, env=environment(**(env or {})), timeout=300, **more
        )  # type: ignore[call-overload]
        return Collected(process, folder)

    return start


def program(name: str) -> str:
    """Path of a program of these tests."""
    return str(PROGRAMS / name)
