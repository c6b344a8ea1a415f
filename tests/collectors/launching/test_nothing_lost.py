"""Whatever ends a program, or is taken from it, its rows are kept, the rest is named, and the training is unharmed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.conftest import Collect, program, run_plain
from tracelyze import analyzers

BENCHMARK = Path(__file__).parents[3] / "benchmarks/nothing_lost.py"


@pytest.fixture(scope="module")
def kill() -> Callable[..., list[Any]]:
    spec = importlib.util.spec_from_file_location("nothing_lost", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nothing_lost"] = module  # where its dataclass looks for itself
    spec.loader.exec_module(module)
    return module.kill  # type: ignore[no-any-return]


@pytest.mark.starts_programs
def test_ended_at_random_moments(kill: Callable[..., list[Any]], tmp_path: Path) -> None:
    """Ten of the points of benchmarks/nothing_lost.py, with every signal that it knows."""
    points = kill(10, seed=5, seconds=1.0, folder=tmp_path)
    assert len(points) == 10
    assert len({point.how for point in points}) >= 4
    assert [point for point in points if not point.kept] == []
    assert sum(point.read for point in points) > 0


@pytest.mark.parametrize("how", ["no folder can be made", "no descriptors", "run deleted", "folder deleted"])
def test_the_training_goes_on_without_what_recording_needs(how: str, collect: Collect, tmp_path: Path) -> None:
    plain = run_plain(sys.executable, program("hardship.py"), "nothing", str(tmp_path / "none"))
    collected = collect(sys.executable, program("hardship.py"), how, str(tmp_path / "none"))
    assert collected.process.returncode == 0, collected.process.stderr
    assert collected.process.stdout == plain.stdout, "the same loss to the last bit"
    assert collected.own_stderr == ""
    assert collected.process.stderr.count("recording stopped, the program goes on") == 1


def test_a_null_read_names_its_line(collect: Collect, tmp_path: Path) -> None:
    plain = run_plain(sys.executable, program("hardship.py"), "null read", str(tmp_path))
    collected = collect(sys.executable, program("hardship.py"), "null read", str(tmp_path))
    assert collected.process.returncode == plain.returncode == -11
    assert collected.own_stderr == plain.stderr
    (process,) = collected.run.processes
    assert len(process.steps) == 40
    stacks = (collected.folder / process.name / "signals.txt").read_text()
    assert "Segmentation fault" in stacks
    assert "hardship.py" in stacks
    assert process.exit.kind == "signal"
    assert "of hardship.py" in process.exit.detail


def test_stacks_go_where_the_programs_own_faulthandler_sends_them(collect: Collect, tmp_path: Path) -> None:
    enabled = (
        "import faulthandler, runpy, sys; faulthandler.enable(); "
        f"sys.argv[:] = [{program('hardship.py')!r}, 'null read', {str(tmp_path)!r}]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", enabled]
    plain, collected = run_plain(*command), collect(*command)
    assert collected.process.returncode == plain.returncode == -11
    for text in (plain.stderr, collected.own_stderr):  # where our threads are shown as well
        assert "Fatal Python error: Segmentation fault" in text
        assert "hardship.py" in text.partition("Current thread")[2]
    (process,) = collected.run.processes
    assert process.exit.kind == "vanished"
    assert "went to its own output" in process.exit.detail
    assert any(finding.rule == "killed" for finding in analyzers.diagnose(collected.folder).findings)


def test_memory_that_cannot_be_had_is_the_programs_error(collect: Collect, tmp_path: Path) -> None:
    """The allocator refuses. That the kernel kills instead is what SIGKILL above stands for."""
    collected = collect(sys.executable, program("hardship.py"), "out of memory", str(tmp_path))
    assert collected.process.returncode == 1
    (process,) = collected.run.processes
    assert len(process.steps) == 20
    rules = {finding.rule for finding in analyzers.diagnose(collected.folder).findings}
    assert rules & {"out-of-memory", "crash"}
    assert not (collected.folder / process.name / "stopped.txt").exists(), "only what stopped recording leaves it"
