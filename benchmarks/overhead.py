"""What recording costs: the same training bare, under tracelyze and with what people use instead, in turn.

    python benchmarks/overhead.py                                      # bare and tracelyze, all workloads, five rounds
    python benchmarks/overhead.py --only mlp --arm tracelyze --arm traceml --rounds 9
    python benchmarks/overhead.py --arm all                            # every arm whose packages are installed

A round runs every arm once, each in a process of its own, in an order that rotates from round to round. Each number is
arm / bare (or arm - bare) of the same round, printed as median [smallest - largest] over the rounds. Ratios of runs
made in turn hold on a machine whose speed drifts; absolute times do not.

    wall, CPU     time of a training step, by clock and by processor, from inside the training process after warm-up
    us added      processor microseconds that a step takes more
    start         wall seconds from the command's start to the first step's end, more than bare
    whole CPU     processor time of everything the command started: helpers, servers and conversions at the end included
    peak MB       largest resident memory of the training process, more than bare

The other arms log the loss of every step, as their documentation shows: torch.utils.tensorboard and Lightning's CSV
logger; TraceML (traceml-ai), with its two edits, times the phases of a step and records no loss.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

WORKLOADS = {
    "mlp": "3-layer MLP, batch 32, AdamW: below 1 ms a step",
    "cnn": "ResNet-like CNN, SGD: 20 to 50 ms a step, 60 tensors",
    "transformer": "8-layer transformer, AdamW: 20 to 50 ms a step, 100 tensors",
    "loader": "the CNN fed by a DataLoader with 4 workers",
    "ddp": "the transformer on 2 ranks, DistributedDataParallel over gloo",
}
SCRIPT = Path(__file__).with_name("workloads.py")
Measured = dict[str, float]


class Arm(NamedTuple):
    """One way to run a workload: the package it needs, what the script does itself, the command around it."""

    package: str
    edits: str
    command: Callable[[list[str], int, Path], list[str]]


def plain(script: list[str], ranks: int, _folder: Path) -> list[str]:
    if ranks == 1:
        return [sys.executable, *script]
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *script]


def collected(script: list[str], ranks: int, folder: Path, *options: str) -> list[str]:
    own = ["--quiet", "--out", str(folder / "run"), *options]
    return [sys.executable, "-m", "tracelyze", "collect", *own, "--", *plain(script, ranks, folder)]


def under_traceml(script: list[str], ranks: int, folder: Path) -> list[str]:
    own = ["--logs-dir", str(folder), "--run-name", "run", "--nproc-per-node", str(ranks)]
    return [str(Path(sys.executable).with_name("traceml")), "run", *own, script[0], "--args", *script[1:]]


ARMS = {
    "bare": Arm("torch", "none", plain),
    "tracelyze": Arm("tracelyze", "none", collected),
    "windows": Arm("tracelyze", "none", lambda *job: collected(*job, "--profile-every", "100")),
    "traceml": Arm("traceml_ai", "traceml", under_traceml),
    "tensorboard": Arm("tensorboard", "tensorboard", plain),
    "csv": Arm("lightning", "csv", plain),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=WORKLOADS, action="append")
    parser.add_argument("--arm", choices=[*ARMS, "all"], action="append", help="default: tracelyze")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="also write the numbers as JSON")
    arguments = parser.parse_args()
    arms = chosen(arguments.arm or ["tracelyze"])
    results: dict[str, list[dict[str, Measured]]] = {}
    print(row("workload", "arm", "ms bare", "wall", "CPU", "us added", "start s added", "whole CPU", "peak MB added"))
    for name in arguments.only or WORKLOADS:
        results[name] = [measure_round(name, arms, index) for index in range(arguments.rounds)]
        for arm in arms[1:]:
            print(row(name, arm, *summary(results[name], arm)), flush=True)
        if arguments.output:
            arguments.output.write_text(json.dumps(results, indent=1))


def chosen(asked: list[str]) -> list[str]:
    """The arms to run, bare first; one whose package is missing is left out, with a line."""
    names = list(ARMS) if "all" in asked else ["bare", *(name for name in ARMS if name in asked and name != "bare")]
    missing = [name for name in names if importlib.util.find_spec(ARMS[name].package) is None]
    for name in missing:
        print(f"{name}: left out, {ARMS[name].package} is not installed", file=sys.stderr)
    return [name for name in names if name not in missing]


def measure_round(workload: str, arms: list[str], index: int) -> dict[str, Measured]:
    """Every arm once. Rotating the order gives each arm each neighbour and place."""
    turn = index % len(arms)
    return {arm: measure(workload, ARMS[arm]) for arm in [*arms[turn:], *arms[:turn]]}


def measure(workload: str, arm: Arm) -> Measured:
    """One run of a workload in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = folder / "report.json"
        script = [str(SCRIPT), workload, str(report), arm.edits, str(time.time())]
        command = arm.command(script, 2 if workload == "ddp" else 1, folder)
        environment = dict(os.environ) | {"OMP_NUM_THREADS": "1"}
        log = folder / "log.txt"
        with log.open("wb") as output:
            running = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=folder)
            _, status, usage = os.wait4(running.pid, 0)
            running.returncode = os.waitstatus_to_exitcode(status)
        if running.returncode != 0 or not report.exists():
            raise SystemExit(f"{' '.join(command)}\nended with {running.returncode}:\n{log.read_text()[-2000:]}")
        return json.loads(report.read_text()) | {"whole_cpu": usage.ru_utime + usage.ru_stime}


def row(workload: str, arm: str, bare: str, *columns: str) -> str:
    return f"{workload:12} {arm:12} {bare:>7} " + " ".join(f"{column:>22}" for column in columns)


def summary(rounds: list[dict[str, Measured]], arm: str) -> list[str]:
    """The columns of a row: median [smallest - largest] over the rounds."""

    def spread(values: list[float], form: str) -> str:
        return f"{statistics.median(values):{form}} [{min(values):{form}} - {max(values):{form}}]"

    def ratio(of: str) -> str:
        return spread([found[arm][of] / found["bare"][of] for found in rounds], ".3f")

    def added(of: str, factor: float, form: str) -> str:
        return spread([(found[arm][of] - found["bare"][of]) * factor for found in rounds], form)

    bare = statistics.median(found["bare"]["wall"] for found in rounds) * 1e3
    return [
        f"{bare:.2f}",
        ratio("wall"),
        ratio("cpu"),
        added("cpu", 1e6, ".0f"),
        added("start", 1, ".2f"),
        ratio("whole_cpu"),
        added("peak", 1e-6, ".0f"),
    ]


if __name__ == "__main__":
    main()
