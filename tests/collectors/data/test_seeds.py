"""Which generators a program has seeded, before torch was imported or later."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.collectors.conftest import program
from tracelyze.analyzers import diagnose

pytest.importorskip("torch")


@pytest.mark.starts_programs
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (("draws", "torch"), "fired"),
        (("draws", "numpy"), "fired"),
        (("draws",), "skipped"),
        (("draws", "restores"), "skipped"),
        (("draws", "isolates"), "skipped"),
        (("draws", "isolates", "torch"), "passed"),  # it may have been seeded, too
        (("torch", "numpy", "python"), "passed"),
        (("draws", "torch", "workers"), "passed"),
        (("loop", "loop draws", "torch"), "fired"),
        (("loop", "loop draws", "torch", "numpy"), "passed"),
        (("loop", "torch"), "passed"),
    ],
)
def test_what_is_seeded(collect: Any, said: tuple[str, ...], expected: str) -> None:
    diagnosis = diagnose(collect(sys.executable, program("seeds.py"), *said).run, select=["partial-seeding"])
    assert diagnosis.checks[0].status == expected, diagnosis.checks[0].reason


@pytest.mark.starts_programs
def test_seeds_that_were_given_before_torch_was_imported(collect_started: Any) -> None:
    command = (sys.executable, program("seeds.py"), "torch", "numpy before", "python before")
    diagnosis = diagnose(collect_started(*command).run, select=["partial-seeding"])
    assert diagnosis.checks[0].status == "passed", diagnosis.checks[0].reason


@pytest.mark.starts_programs
@pytest.mark.parametrize(("said", "expected"), [(("torch", "numpy"), "passed"), (("draws", "torch"), "fired")])
def test_numpy_that_imports_its_generators_late(collect_started: Any, said: tuple[str, ...], expected: str) -> None:
    """The fork server has them in memory already."""
    diagnosis = diagnose(collect_started(sys.executable, program("seeds.py"), *said).run, select=["partial-seeding"])
    assert diagnosis.checks[0].status == expected, diagnosis.checks[0].reason
