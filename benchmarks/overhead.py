"""What collecting costs: the same training bare and under the collector, in turn, A B B A A B ...

    python benchmarks/overhead.py                    # all workloads, five pairs each
    python benchmarks/overhead.py --only transformer --pairs 9

For every workload: user CPU and wall time of the training loop, measured inside the process after warm-up steps, as
the ratio collected / bare of each pair, printed as median [smallest - largest]; the same for the start of the process,
up to its first step. Ratios of runs made in turn hold on a machine whose speed drifts; absolute times do not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WORKLOADS = {
    "mlp": "4-layer MLP, batch 32, AdamW: below 1 ms a step",
    "cnn": "ResNet-like CNN, batch 16, SGD: about 20 ms a step, 62 tensors",
    "transformer": "8-layer transformer, AdamW, clipped: 20 to 40 ms a step, 100 tensors",
    "loader": "the CNN fed by a DataLoader with 2 workers",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=WORKLOADS, action="append")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--output", type=Path, help="also write the numbers as JSON")
    arguments = parser.parse_args()
    results = {}
    print(row("workload", "ms/step bare", "wall ratio", "CPU ratio", "us/step added", "start s added"))
    for name in arguments.only or WORKLOADS:
        results[name] = compare(name, arguments.pairs)
        print(row(name, *summary(results[name])), flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=1))


def compare(name: str, pairs: int) -> list[dict[str, dict[str, float]]]:
    """`pairs` pairs of measurements, the order within a pair alternating."""
    found = []
    for index in range(pairs):
        order = ("bare", "collected") if index % 2 == 0 else ("collected", "bare")
        found.append({how: measure(name, collected=how == "collected") for how in order})
    return found


def measure(name: str, *, collected: bool) -> dict[str, float]:
    """One run of a workload in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, str(Path(__file__).with_name("workloads.py")), name, str(report)]
        if collected:
            run = str(Path(folder) / "run")
            command = [sys.executable, "-m", "tracelyze", "collect", "--quiet", "--out", run, "--", *command]
        environment = dict(os.environ) | {"OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        return json.loads(report.read_text())


def row(name: str, bare: str, wall: str, cpu: str, added: str, start: str) -> str:
    return f"{name:12} {bare:>12} {wall:>22} {cpu:>22} {added:>18} {start:>20}"


def summary(pairs: list[dict[str, dict[str, float]]]) -> list[str]:
    """The columns of a row: median [smallest - largest] over the pairs."""

    def spread(values: list[float], form: str) -> str:
        return f"{statistics.median(values):{form}} [{min(values):{form}} - {max(values):{form}}]"

    wall = [p["collected"]["wall"] / p["bare"]["wall"] for p in pairs]
    cpu = [p["collected"]["cpu"] / p["bare"]["cpu"] for p in pairs]
    added = [(p["collected"]["cpu"] - p["bare"]["cpu"]) * 1e6 for p in pairs]
    start = [p["collected"]["start_cpu"] - p["bare"]["start_cpu"] for p in pairs]
    bare = statistics.median(p["bare"]["wall"] for p in pairs) * 1e3
    return [f"{bare:.2f}", spread(wall, ".3f"), spread(cpu, ".3f"), spread(added, ".0f"), spread(start, ".2f")]


if __name__ == "__main__":
    main()
