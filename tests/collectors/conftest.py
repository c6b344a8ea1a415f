"""Run real programs under the collector, and read back what they left.

`collect` and `run_plain` let a fork server (tests/fork_server) run them, with torch in memory, and frameworks where
that is asked for; a command that it cannot run starts a process. `collect_started` and `run_started` always start one:
for tests of how a program starts and of what it sees of its interpreter. A program of theirs updates by hand where the
optimizer is not the point: the first one of a process imports torch._dynamo, which takes more than torch itself.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from types import CodeType
from typing import Any

import pytest

from tests.fork_server import client
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


@functools.cache
def sizes_are_told() -> bool:
    """Whether nodes of a graph tell the sizes of what they put out: torch 2.4's do not."""
    import torch

    return hasattr(torch.ones(2, requires_grad=True).sum().grad_fn, "_input_metadata")


def codes(source: str) -> Iterator[CodeType]:
    """The code of a program and of its functions, the inner ones last."""
    todo = [compile(dedent(source), "train.py", "exec")]
    while todo:
        code = todo.pop()
        todo += [one for one in code.co_consts if isinstance(one, CodeType)]
        yield code


def right_or_untold(value: float | None, expected: float) -> bool:
    """Whether a number read off a graph is the expected one, or unknown where nodes do not tell their sizes."""
    return value == expected or (not sizes_are_told() and (value is None or math.isnan(value)))


def run_plain(
    *command: str, modules: tuple[str, ...] = client.TRAININGS, **options: Any
) -> subprocess.CompletedProcess[str]:
    """The same program without the collector, once for all tests that name the same command.

    `modules`: which the process that it is forked from has in memory.
    """
    if not client.can_run(command) or not options.keys() <= {"cwd", "input"}:
        return run_started(*command, **options)
    if options:
        return client.shared(modules).run(command, environment(), **options)
    return _run_once(command, modules)


@functools.cache
def _run_once(command: tuple[str, ...], modules: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return client.shared(modules).run(command, environment())


def run_started(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The same program without the collector, in a process of its own from the beginning."""
    options = {"env": environment(), "timeout": 300} | options
    return subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[no-any-return]


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TRACELYZE", "PYTHONWARNINGS"))}
    return kept | {"OMP_NUM_THREADS": "1"} | more


def wrapped(folder: Path, command: tuple[str, ...], options: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "tracelyze", "collect", "--out", str(folder), *options, "--", *command]


@pytest.fixture(scope="session")
def recorded_once() -> dict[object, Collected]:
    """Programs of these tests that have been recorded, by command, options and environment."""
    return {}


@pytest.fixture
def collect(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    recorded_once: dict[object, Collected],
    collect_started: Collect,
) -> Collect:
    """`collect("python", "x.py", ...)`: the program under `tracelyze collect`, run to its end.

    A command that was recorded for another test is not run again, unless it holds a path of this test's own: a test
    reads its run, and does not change it. `modules` as for `run_plain`.
    """

    def record(
        *command: str,
        env: dict[str, str] | None = None,
        options: tuple[str, ...] = (),
        modules: tuple[str, ...] = client.TRAININGS,
        **more: Any,
    ) -> Collected:
        own = any(str(tmp_path) in word for word in (*command, *(env or {}).values()))
        key = (command, options, tuple(sorted((env or {}).items())))
        if not client.can_run(command) or not more.keys() <= {"cwd", "input"}:
            return collect_started(*command, env=env, options=options, **more)
        if more or own or key not in recorded_once:
            folder = tmp_path_factory.mktemp("recorded") / "run"
            server = client.shared(modules)
            process = server.run(wrapped(folder, command, options), environment(**(env or {})), **more)
            recorded_once[key] = Collected(process, folder)
        return recorded_once[key]

    return record


@pytest.fixture
def collect_started(tmp_path: Path) -> Collect:
    """As `collect`, in a process of its own from the beginning, each time."""

    def start(
        *command: str, env: dict[str, str] | None = None, options: tuple[str, ...] = (), **more: Any
    ) -> Collected:
        folder = tmp_path / f"run{len(list(tmp_path.glob('run*')))}"
        process = subprocess.run(
            wrapped(folder, command, options),
            capture_output=True,
            text=True,
            env=environment(**(env or {})),
            timeout=300,
            **more,
        )
        return Collected(process, folder)

    return start


def two_ranks(script: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a program of these tests as two ranks, which the fork server can do: forked_ranks.py."""
    return (sys.executable, program("forked_ranks.py"), "2", program(script), *arguments)


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skips a test without these; to import them, as pytest.importorskip does, takes seconds."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)} (group frameworks)")


def program(name: str) -> str:
    """Path of a program of these tests."""
    return str(PROGRAMS / name)
