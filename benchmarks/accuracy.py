"""How often is the diagnosis right? Runs every labelled training of `tests/trainings` and counts.

    python -m benchmarks.accuracy [--only PATTERN] [--seeds N] [--jobs N] [--output RESULT.json] [--keep FOLDER]
    python -m benchmarks.accuracy --folder SCRIPTS    # your own, with labels (benchmarks/labelled_scripts.py)

Per rule: recall over the runs that are labelled with it as root cause, precision over the runs on which it fired. A
label with alternatives counts for the alternative that was found, and for the first that is a rule if none was.
Findings of severity info are not counted. Over all runs, and by the idiom that the script is written in: faulty runs
whose roots are exactly the labelled ones, and healthy runs without an alarm, with 95% intervals (Wilson 1927).
`--seeds 3` runs each script with three sets of random numbers; the intervals then count runs that are not independent.
`--load N` keeps N cores busy meanwhile.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import platform
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import labelled_scripts
from tests.trainings.judge import Judgement, diagnose
from tests.trainings.manifest import TRAININGS, Training


@dataclass
class Score:
    """Counts of one rule: labelled runs, those found, runs on which it fired, those where it may."""

    labelled: int = 0
    found: int = 0
    fired: int = 0
    justified: int = 0

    @property
    def recall(self) -> float | None:
        """Share of the labelled runs on which it was named as a root."""
        return self.found / self.labelled if self.labelled else None

    @property
    def precision(self) -> float | None:
        """Share of its alarms that the label allows."""
        return self.justified / self.fired if self.fired else None


def scores(judgements: list[Judgement]) -> dict[str, Score]:
    """Score of every rule that is labelled or fired."""
    table: dict[str, Score] = defaultdict(Score)
    for judgement in judgements:
        training = judgement.training
        for root in training.roots:
            if root in judgement.uncovered:
                continue
            names = [name for name in root.split("|") if name in judgement.known] or root.split("|")
            hit = next((name for name in names if name in judgement.roots), None)
            table[hit or names[0]].labelled += 1
            table[hit or names[0]].found += hit is not None
        for rule in {finding["rule"] for finding in judgement.findings}:
            table[rule].fired += 1
            table[rule].justified += rule in training.allowed()
    return dict(sorted(table.items()))


def totals(judgements: list[Judgement]) -> dict[str, Any]:
    """Counts over all runs. A faulty run is right when all its faults are named as roots and nothing else is."""
    healthy = [j for j in judgements if j.training.healthy]
    faulty = [j for j in judgements if not j.training.healthy and len(j.uncovered) < len(j.training.roots)]
    placed = [j.located for j in faulty if j.located is not None]
    return {
        "runs": len(judgements),
        "healthy": len(healthy),
        "healthy_silent": sum(not j.problems for j in healthy),
        "faulty": len(faulty),
        "faulty_right": sum(not j.problems for j in faulty),
        "faulty_found": sum(not any(p.kind in ("miss", "wrong cause", "failed") for p in j.problems) for j in faulty),
        "faults": sum(len(j.training.roots) - len(j.uncovered) for j in faulty),
        "faults_by_best_name": sum(root.split("|")[0] in j.roots for j in faulty for root in j.training.roots),
        "without_a_rule": sum(bool(j.uncovered) for j in judgements),
        "lines_right": sum(placed),
        "lines_given": len(placed),
        "lines_labelled": sum(bool(j.training.lines) for j in faulty),
    }


def percent(value: float | None) -> str:
    """Share as a whole percentage, a dash where there is none."""
    return "-" if value is None else f"{100 * value:.0f}%"


def interval(right: int, runs: int) -> str:
    """The 95% interval of a share, in percent (Wilson 1927, doi:10.1080/01621459.1927.10502953)."""
    if not runs:
        return "-"
    z, share = 1.96, right / runs
    middle = (share + z * z / (2 * runs)) / (1 + z * z / runs)
    half = z / (1 + z * z / runs) * (share * (1 - share) / runs + z * z / (4 * runs * runs)) ** 0.5
    return f"{100 * max(0.0, middle - half):.0f} to {100 * min(1.0, middle + half):.0f}%"


def by_idiom(judgements: list[Judgement]) -> dict[str, dict[str, Any]]:
    """The totals of the scripts of each idiom."""
    groups: dict[str, list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        groups[labelled_scripts.idiom(judgement.training.script)].append(judgement)
    return {name: totals(members) for name, members in sorted(groups.items())}


def show(judgements: list[Judgement], seconds: float) -> None:
    """Prints problems, the table of rules and the totals."""
    for judgement in judgements:
        for problem in judgement.problems:
            print(f"{judgement.training.name:45s} {problem.kind}: {problem.rule}: {problem.why}")
        if judgement.located is False:
            print(f"{judgement.training.name:45s} wrong line")
        if judgement.uncovered:
            print(f"{judgement.training.name:45s} no rule for {', '.join(judgement.uncovered)}")
    print(f"\n{'rule':28s} {'labelled':>8s} {'found':>6s} {'recall':>7s} {'fired':>6s} {'precision':>9s}")
    for rule, score in scores(judgements).items():
        recall, precision = percent(score.recall), percent(score.precision)
        print(f"{rule:28s} {score.labelled:8d} {score.found:6d} {recall:>7s} {score.fired:6d} {precision:>9s}")
    print(f"\n{'idiom':28s} {'healthy':>8s} {'silent':>7s} {'faulty':>7s} {'right':>6s}")
    for name, count in by_idiom(judgements).items():
        counts = (count["healthy"], count["healthy_silent"], count["faulty"], count["faulty_right"])
        print("{:28s} {:8d} {:7d} {:7d} {:6d}".format(name, *counts))
    count = totals(judgements)
    silent, right = count["healthy_silent"], count["faulty_found"]
    print(f"\nhealthy runs without an alarm   {silent} of {count['healthy']} ({interval(silent, count['healthy'])})")
    print(f"faulty runs with every root     {right} of {count['faulty']} ({interval(right, count['faulty'])})")
    print(f"  and nothing else              {count['faulty_right']} of {count['faulty']}")
    print(f"faults by their best name       {count['faults_by_best_name']} of {count['faults']}")
    print(f"faulty runs without any rule    {count['without_a_rule']} (not counted above)")
    print(f"right line                      {count['lines_right']} of {count['lines_given']} given")
    print(f"{count['runs']} runs in {seconds:.0f} s")


def report(judgements: list[Judgement], seconds: float) -> dict[str, Any]:
    """The result as plain data."""
    return {
        "python": platform.python_version(),
        "seconds": round(seconds, 1),
        "totals": totals(judgements),
        "idioms": by_idiom(judgements),
        "rules": {
            rule: {**asdict(score), "recall": score.recall, "precision": score.precision}
            for rule, score in scores(judgements).items()
        },
        "runs": [
            {
                "name": j.training.name,
                "expected": list(j.training.roots),
                "roots": j.roots,
                "findings": {f["rule"]: f["caused_by"] for f in j.findings},
                "located": j.located,
                "problems": [asdict(problem) for problem in j.problems],
                "collect_seconds": round(j.collect_seconds, 2),
                "diagnose_seconds": round(j.diagnose_seconds, 2),
            }
            for j in judgements
        ],
    }


def judge_all(trainings: list[Training], jobs: int, keep: Path) -> list[Judgement]:
    """Runs the trainings, `jobs` at a time, each in its own folder below `keep`."""

    def one(training: Training) -> Judgement:
        folder = keep / training.name
        folder.mkdir(parents=True, exist_ok=True)
        judgement = diagnose(training, folder)
        print("." if not judgement.problems else "F", end="", file=sys.stderr, flush=True)
        return judgement

    with ThreadPoolExecutor(jobs) as pool:
        judgements = list(pool.map(one, trainings))
    print(file=sys.stderr)
    return judgements


def reseeded(trainings: list[Training], seeds: int) -> list[Training]:
    """Every training with so many sets of random numbers: its own, and others."""
    return [replace(training, seed=1000 * index) for index in range(seeds) for training in trainings]


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Keeps so many cores at work."""
    workers = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(cores)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.terminate()


def _spin() -> None:
    while True:
        pass


def main() -> int:
    """Exit code 1 when the diagnosis of any run differs from its label."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="names of trainings, with wildcards; several with commas")
    parser.add_argument("--folder", type=Path, help="scripts that carry their own labels, instead of the repository's")
    parser.add_argument("--seeds", type=int, default=1, help="sets of random numbers for each script")
    parser.add_argument("--load", type=int, default=0, help="cores that other work keeps busy meanwhile")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time; more than cores makes timings noisy")
    parser.add_argument("--output", type=Path, help="write the result as JSON")
    parser.add_argument("--keep", type=Path, help="keep the recorded runs in this new folder")
    args = parser.parse_args()
    patterns = [pattern.replace("[", "[[]") for pattern in args.only.split(",")]
    try:
        offered = TRAININGS if args.folder is None else labelled_scripts.read(args.folder)
    except (OSError, ValueError) as problem:
        parser.error(str(problem))
    chosen = [t for t in offered if any(fnmatch.fnmatch(t.name, pattern) for pattern in patterns)]
    if not chosen:
        parser.error(f"no training is called {args.only}")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, busy(args.load):
        judgements = judge_all(reseeded(chosen, args.seeds), args.jobs, (args.keep or Path(folder)).resolve())
    seconds = time.monotonic() - started
    show(judgements, seconds)
    if args.output:
        args.output.write_text(json.dumps(report(judgements, seconds), indent=1) + "\n", encoding="utf-8")
    return int(any(judgement.problems for judgement in judgements))


if __name__ == "__main__":
    sys.exit(main())
