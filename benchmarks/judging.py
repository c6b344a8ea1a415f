"""What it costs to judge the process folders of a run: `python benchmarks/judging.py sample_traces/healthy`.

Each folder of a copy of RUN is judged by all rules as often as `--times` says, after some times that are not counted.
Printed are milliseconds of processor time for a folder, of the quickest time and the median, and what the dearest
checks take of them. The first one that reads a column pays for the others that use it.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from tracelyze.analyzers.extensions import all_rules
from tracelyze.analyzers.ranks.summary import Plan, Task, judge_folder
from tracelyze.analyzers.recorded.run import Process
from tracelyze.analyzers.rule import CheckFunction, Limits, Outcome

WARM_UP = 5


def main() -> None:
    """Copy, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--checks", type=int, default=10, help="how many of the dearest to name")
    given = parser.parse_args()
    rules = all_rules()
    spent: dict[str, float] = defaultdict(float)
    names = tuple(rule.id for rule in rules)
    timed = tuple(replace(rule, check=_timed(rule.id, rule.check, spent)) for rule in rules)
    with tempfile.TemporaryDirectory() as place:
        run = shutil.copytree(given.run, Path(place) / "run")
        folders = [str(folder) for folder in sorted(run.iterdir()) if folder.is_dir()]
        taken = _judge([Task(folder, Plan(names)) for folder in folders], given.times)
        print(f"a process folder takes {min(taken):.1f} ms of processor time, median {statistics.median(taken):.1f}")
        _judge([Task(folder, Plan(names, given=timed)) for folder in folders], given.times)
    for name in sorted(spent, key=lambda name: -spent[name])[: given.checks]:
        print(f"{spent[name] / (given.times + WARM_UP) / len(folders):8.2f} ms  {name}")


def _judge(tasks: list[Task], times: int) -> list[float]:
    """Milliseconds of processor time that each task took each time."""
    taken = []
    for task in tasks * (WARM_UP + times):
        begin = time.process_time()
        judge_folder(task)
        taken.append(1e3 * (time.process_time() - begin))
    return taken[WARM_UP * len(tasks) :]


def _timed(name: str, check: CheckFunction, spent: dict[str, float]) -> CheckFunction:
    def timed(process: Process, limits: Limits) -> Outcome:
        begin = time.process_time()
        try:
            return check(process, limits)
        finally:
            spent[name] += 1e3 * (time.process_time() - begin)

    return timed


if __name__ == "__main__":
    main()
