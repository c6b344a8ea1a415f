"""In a torch that lacks a name which it never promised, trainings run as before; the run says what is off and why."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

from tests.collectors.conftest import program, run_plain
from tracelyze.analyzers.recorded.run_directory import load
from tracelyze.collectors.internals import private_names
from tracelyze.collectors.signals import SIGNALS

COLLECTIVES = (private_names.COLLECTIVES, private_names.COLLECTIVES_BEFORE)  # torch 2.4 has neither
SOURCES = Path(private_names.__file__).parents[1]  # all rooms of the collector
RECORDS_COLLECTIVES = len(private_names.lacking(torch, COLLECTIVES)) < len(COLLECTIVES)
NEEDED = sorted({name for signal in SIGNALS for name in signal.needs} | set(private_names.SUBSTITUTES))


@pytest.fixture(scope="module")
def plain() -> list[str]:
    done = run_plain(sys.executable, "-W", "ignore", program("lacking.py"))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.starts_programs
@pytest.mark.parametrize("name", NEEDED)
def test_a_torch_that_lacks_a_name_costs_the_signals_that_need_it(name: str, plain: list[str], tmp_path: Path) -> None:
    done = run_plain(sys.executable, "-W", "ignore", program("lacking.py"), str(tmp_path / "run"), name)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said == plain[: len(said)] != []
    assert "recording stopped" not in done.stderr
    (process,) = load(tmp_path / "run").processes
    assert len(process.steps) >= 24
    assert [row["text"] for row in process.events.records() if row["kind"] == "collector-error"] == []
    states = process.signals
    off = {signal.name for signal in SIGNALS if name in signal.needs and signal.default_on}
    assert {states[signal]["state"] for signal in off} <= {"off"}
    assert all(f"lacks torch.{name}" in states[signal]["reason"] for signal in off)
    absent = off if RECORDS_COLLECTIVES else off | {"collectives"}
    assert {other for other, entry in states.items() if "lacks torch." in (entry.get("reason") or "")} == absent
    told = {row["name"]: row["text"] for row in process.events.records() if row["kind"] == "substitute"}
    assert told == ({name: private_names.SUBSTITUTES[name]} if name in private_names.SUBSTITUTES else {})


def test_this_torch_has_all_names() -> None:
    assert private_names.lacking(torch, NEEDED) == []


def test_all_names_that_are_used_are_known() -> None:
    used = re.compile(r"\btorch\.((?:[a-z]\w*\.)*_[A-Za-z]\w*(?:\.\w+)*)")
    found = {
        name
        for path in SOURCES.rglob("*.py")
        for line in path.read_text().splitlines()
        if not line.lstrip().startswith("#")
        for name in used.findall(line.partition("  # ")[0])
    }
    # These are looked for among the modules that the program has imported: asking torch for torch._dynamo imports it.
    allowed = {"_dynamo", "_dynamo.utils", "utils._device"}
    assert {name for name in found if not any(name.startswith(known) for known in NEEDED)} <= allowed
