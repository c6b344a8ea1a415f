"""What is left of loaded weights when a model is used first, whichever way they were changed after the load."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.collectors.conftest import program, run_plain
from tracelyze.analyzers import diagnose

pytest.importorskip("torch")
pytestmark = pytest.mark.starts_programs
RULE = "repeated-initialization"


@pytest.mark.parametrize("how", ["filled", "replaced", "uniform"])
def test_nothing_is_left(collect: Any, how: str) -> None:
    collected = collect(sys.executable, program("loaded_weights.py"), how)
    if how == "filled":
        plain = run_plain(sys.executable, program("loaded_weights.py"), how)
        assert collected.process.stdout == plain.stdout, "the numbers are what they are without us"
    diagnosis = diagnose(collected.run, select=[RULE])
    assert [one.severity for one in diagnosis.findings] == ["critical"], diagnosis.checks


@pytest.mark.parametrize(
    "how",
    [
        "filled first",
        "loaded again",
        "another file",
        "averaged",
        "shrunk",
        "cast",
        "pruned",
        "pruned by hand",
        "new ends",
        "upper half",
        "tied",
        "evaluated",
    ],
)
def test_something_is_left(collect: Any, how: str) -> None:
    """`evaluated`: the loaded weights were used before they were drawn anew, as for a comparison with random ones."""
    diagnosis = diagnose(collect(sys.executable, program("loaded_weights.py"), how).run, select=[RULE])
    assert not diagnosis.findings
