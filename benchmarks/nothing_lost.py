"""Ends trainings at random moments, reads back what they left, and diagnoses each.

    python benchmarks/nothing_lost.py --points 200

A point is one training process that SIGKILL, SIGSEGV, SIGABRT, SIGTERM or os._exit ends up to 2.5 s after its first
step. It counts as kept when every step that was done more than a second before is on disk, what is there is complete
and in order, and the diagnosis names the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from tracelyze.analyzers.engine import diagnose
from tracelyze.analyzers.recorded.run_directory import load

PROGRAM = Path(__file__).parents[1] / "tests/collectors/programs/mortal.py"
KEPT_AFTER = 1.0  # seconds
ENDS = {"SIGKILL": "vanished", "SIGSEGV": "signal", "SIGABRT": "signal", "SIGTERM": "signal", "os._exit": "finished"}


@dataclass(frozen=True)
class Point:
    """How one training ended and what was read back. `lost`: ages of its missing steps at the end, in seconds."""

    how: str
    done: int
    read: int
    lost: tuple[float, ...]
    in_order: bool
    end: str
    told: bool

    @property
    def kept(self) -> bool:
        return self.in_order and self.told and self.end == ENDS[self.how] and max(self.lost, default=0.0) <= KEPT_AFTER


def kill(points: int, seed: int, seconds: float, folder: Path) -> list[Point]:
    """End `points` trainings, each up to `seconds` after its first step; the run directory is made in `folder`."""
    run, notes = folder / "run", folder / "notes.jsonl"
    wrapper = [sys.executable, "-m", "tracelyze", "collect", "--quiet", "--out", str(run), "--"]
    command = [sys.executable, str(PROGRAM), str(points), str(seed), str(seconds), str(notes)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*wrapper, *command], check=True, env=environment, timeout=60 + points * (seconds + 10))
    return judge(run, notes)


def judge(run: Path, notes: Path) -> list[Point]:
    """What was read back of each training that `notes` tells the end of."""
    told = {note["pid"]: note for note in map(json.loads, notes.read_text().splitlines())}
    loaded = load(run)
    found = []
    for process in loaded.processes:
        note = told.pop(process.facts["pid"])
        steps = list(process.steps["step"])
        diagnosis = diagnose(replace(loaded, processes=[process], notes=list(process.notes)))
        rules = {finding.rule for finding in diagnosis.findings}
        lost = tuple(note["ended"] - when for when in note["times"][len(steps) :])
        in_order = steps == list(range(1, len(steps) + 1))
        ended = ("killed" in rules) == (process.exit.kind in ("vanished", "signal"))
        found.append(Point(note["how"], len(note["times"]), len(steps), lost, in_order, process.exit.kind, ended))
    assert not told, f"trainings that left no folder: {told.keys()}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = kill(given.points, given.seed, given.seconds, Path(folder))
    for point in found:
        if not point.kept:
            print("not kept:", point)
    ages = sorted(max(point.lost, default=0.0) for point in found)
    print(f"{sum(point.kept for point in found)} of {len(found)} points kept: {dict(Counter(p.how for p in found))}")
    print(f"steps done {sum(p.done for p in found)}, read back {sum(p.read for p in found)}")
    print(f"age of the oldest lost step: median {ages[len(ages) // 2]:.2f} s, largest {ages[-1]:.2f} s")


if __name__ == "__main__":
    main()
