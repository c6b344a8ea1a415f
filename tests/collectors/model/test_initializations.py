"""Initialisations are counted by weight, whichever way a program reaches it."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.collectors.conftest import program, run_plain
from tracelyze.analyzers import diagnose

pytest.importorskip("torch")
RULE = "repeated-initialization"


@pytest.mark.starts_programs
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("default", "passed"),
        ("once", "passed"),
        ("device", "passed"),
        ("thrice", "info"),
        ("data", "info"),
        ("by a library", "passed"),
        ("loaded first", "critical"),
        ("loaded in its class", "critical"),
        ("loaded last", "passed"),
        ("new head", "passed"),
        ("part loaded first", "critical"),
        ("vectors first", "critical"),
        ("vectors frozen", "critical"),
        ("vectors kept", "passed"),
        ("part anew", "passed"),
        ("part used, then filled", "passed"),
        ("dead units", "passed"),
        ("second loaded first", "critical"),
        ("second loaded last", "passed"),
        ("second of the same", "passed"),
    ],
)
def test_what_is_counted(collect: Any, how: str, expected: str) -> None:
    collected = collect(sys.executable, program("initializations.py"), how)
    if how in ("device", "data"):
        plain = run_plain(sys.executable, program("initializations.py"), how)
        assert collected.process.stdout == plain.stdout, "the numbers are what they are without us"
    diagnosis = diagnose(collected.run, select=[RULE])
    (check,) = diagnosis.checks
    assert (diagnosis.findings[0].severity if diagnosis.findings else check.status) == expected, check.reason
    if expected in ("info", "critical"):
        assert "model.apply(fill)" in diagnosis.findings[0].location.source
