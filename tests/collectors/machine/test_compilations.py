"""What is recorded of torch.compile: pieces, reasons, lines, and nothing where nothing is compiled."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.collectors.conftest import program
from tests.fork_server.client import FRAMEWORKS
from tracelyze.analyzers import diagnose

pytest.importorskip("torch")


@pytest.mark.starts_programs
@pytest.mark.parametrize(
    ("way", "expected"),
    [("break", "fired"), ("loop", "fired"), ("whole", "passed"), ("step", "passed"), ("plain", "skipped")],
)
def test_what_is_compiled(collect: Any, way: str, expected: str) -> None:
    run = collect(sys.executable, program("compiled.py"), way, modules=FRAMEWORKS).run
    diagnosis = diagnose(run, select=["graph-breaks"])
    assert diagnosis.checks[0].status == expected, diagnosis.checks[0].reason
    if way == "break":
        assert "h.sum().item()" in diagnosis.findings[0].location.source
    elif way == "loop":
        (finding,) = diagnosis.findings
        assert ("gives up on forward" in finding.title, "h.abs().max().item()" in finding.location.source) == (
            True,
            True,
        )
    elif way == "step":
        assert "break" in run.processes[0].tables["compilations"].text("kind"), "a compiled step breaks at its backward"
