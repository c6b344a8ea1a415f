"""Clocks of hosts: found apart where the steps of synchronised ranks tell, and only there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tracelyze.analyzers import diagnose
from tracelyze.analyzers.recorded import clocks
from tracelyze.analyzers.recorded.run_directory import load

from .conftest import Collect, program

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


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
    folder = collect(*TORCHRUN, program("ranks.py"), env={"STEP_SECONDS": "0.05"}).folder
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


def test_ranks_that_do_not_wait_for_each_other_tell_nothing(collect: Collect) -> None:
    """Two programs, one of which takes twice as long for a step."""
    slow = "import time, runpy, sys, torch; sys.argv[1:] = ['ok']\n"
    slow += "step = torch.optim.SGD.step\n"
    slow += "def late(*a, **k):\n    time.sleep(0.002)\n    return step(*a, **k)\n"
    slow += f"torch.optim.SGD.step = late\nrunpy.run_path({program('ending.py')!r}, run_name='__main__')"
    script = 'RANK=0 "$0" -c "$1" & RANK=1 "$0" "$2" ok; wait'
    folder = collect("sh", "-c", script, sys.executable, slow, program("ending.py")).folder
    move(folder, 1, 100.0)
    assert [process.rank for process in load(folder).processes] == [0, 1]
    assert offsets(folder) == []
