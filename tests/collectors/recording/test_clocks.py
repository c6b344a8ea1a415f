"""Clocks of hosts: found apart where the steps of synchronised ranks tell, and only there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.collectors.conftest import Collect, program, two_ranks
from tracelyze.analyzers import diagnose
from tracelyze.analyzers.recorded import clocks
from tracelyze.analyzers.recorded.run_directory import load


def offsets(folder: Path) -> list[clocks.Offset]:
    """The offsets between the ranks of a run."""
    ends = [clocks.ends_of(process) for process in load(folder).processes]
    return clocks.offsets(one for one in ends if one is not None)


def move(run: Path, rank: int, seconds: float) -> None:
    """Make it another host, whose clock is `seconds` ahead."""
    (path,) = run.glob(f"rank{rank:05d}*/process.json")
    facts = json.loads(path.read_text())
    facts["host"], facts["clock"]["zero"] = "other-host", facts["clock"]["zero"] + seconds
    path.write_text(json.dumps(facts))


def test_a_shifted_clock_of_a_synchronised_rank_is_found(collect: Collect) -> None:
    folder = collect(*two_ranks("ranks.py"), env={"STEP_SECONDS": "0.05"}).folder
    assert offsets(folder) == [], "one host has one clock"
    for process in load(folder).processes:
        assert abs(clocks.drift(process) or 0.0) < 0.5
        wall = process.samples["wall"]
        assert abs(wall[0] - process.samples["time"][0] - process.facts["clock"]["zero"]) < 0.5
    move(folder, 1, 3.25)
    (offset,) = offsets(folder)
    assert offset.rank == 1
    assert offset.seconds == pytest.approx(3.25, abs=0.1)
    (note,) = [note for note in diagnose(folder).run.notes if "clock" in note]
    assert note.startswith("the clock of other-host is 3.")
    assert "s ahead of that of" in note


APART = """
import os, runpy, sys, time, torch
step = torch.optim.SGD.step
def late(*given, **named):
    time.sleep(0.002)
    return step(*given, **named)
if os.environ["RANK"] == "0":
    torch.optim.SGD.step = late
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def test_ranks_that_do_not_wait_for_each_other_tell_nothing(collect: Collect, tmp_path: Path) -> None:
    """Two programs, one of which takes twice as long for a step."""
    script = tmp_path / "apart.py"
    script.write_text(APART)
    command = (program("forked_ranks.py"), "2", "--independent", str(script), program("ending.py"), "ok")
    folder = collect(sys.executable, *command).folder
    move(folder, 1, 100.0)
    assert [process.rank for process in load(folder).processes] == [0, 1]
    assert offsets(folder) == []
