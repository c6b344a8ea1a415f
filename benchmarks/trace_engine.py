"""What it costs to read a Kineto trace and say what is wrong: CPU per MB and memory, beside the other readers.

    python benchmarks/trace_engine.py TRACE [--sizes 50 500] [--runs 3] [--reference-python PYTHON] [--gzip]

TRACE is a real trace; it is repeated, with shifted time stamps and identifiers, until each size (MB of JSON) is
reached. Every reader runs in a process of its own, in turn, `--runs` times; printed are the median user CPU time
with the least and the most, and the largest resident memory, as the kernel counted them, and the ratio to the first
line. Start-up is included.

Readers: `tracelyze diagnose --format json` (start, read, attribute, judge), the same with the page, for which the steps
that it shows are read a second time (a cost that does not grow with the trace), the same without the command line,
`json.load`, orjson, and the loader of Holistic Trace Analysis; a reader that cannot be run is named at the end.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

NUMBER = re.compile(rb'("(?:ts|correlation|External id|external id|id|external ts)":\s*)(\d+)|(ProfilerStep#)(\d+)')
EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')

VERDICT = """
import json, sys
from tracelyze.analyzers.kineto import diagnose_traces
json.dumps(diagnose_traces(sys.argv[1]).to_dict())
"""
JSON_LOAD = """
import gzip, json, sys
path = sys.argv[1]
json.load(gzip.open(path) if path.endswith("gz") else open(path))
"""
ORJSON = """
import gzip, orjson, sys
path = sys.argv[1]
orjson.loads((gzip.open(path) if path.endswith("gz") else open(path, "rb")).read())
"""
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
TraceAnalysis({0: sys.argv[1]})
"""
READERS = {
    "tracelyze diagnose --format json": ["-m", "tracelyze", "diagnose", "{path}", "--format", "json"],
    "tracelyze diagnose --format html": ["-m", "tracelyze", "diagnose", "{path}", "--format", "html"],
    "tracelyze, reader and verdict": ["-c", VERDICT, "{path}"],
    "json.load": ["-c", JSON_LOAD, "{path}"],
    "orjson": ["-c", ORJSON, "{path}"],
    "HTA": ["-c", HTA, "{path}"],
}
REFERENCES = ("orjson", "HTA")


@dataclass(frozen=True)
class Cost:
    """One run of one reader: seconds of user CPU time, MB of resident memory at the peak."""

    cpu: float
    memory: float


def main() -> None:
    """Makes the traces, runs the readers, prints a table per size."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        for size in arguments.sizes:
            path = Path(folder) / f"trace_{size}MB.json"
            # In a process of its own: a child begins with its parent's peak of memory, so this one has to stay small.
            making = multiprocessing.get_context("spawn").Process(
                target=repeat_trace, args=(arguments.trace, path, size)
            )
            making.start()
            making.join()
            megabytes = path.stat().st_size / 1e6
            if arguments.gzip:
                path = _packed(path)
            _report(path, megabytes, _measure(path, arguments))
            path.unlink()


def repeat_trace(source: Path, target: Path, megabytes: int) -> None:
    """Writes `source` over and over into `target`, each copy later and with identifiers of its own."""
    text = source.read_bytes()
    text = gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text
    start = EVENTS.search(text)
    if start is None:
        sys.exit(f"{source}: has no traceEvents; give a trace in object form")
    end = text.rindex(b"]")
    body = text[start.end() : end].strip()
    pieces, numbers = _numbers(body)
    steps = {name: max((n for kind, n in numbers if kind == name), default=0) for name in ("id", "step")}
    stamps = [n for kind, n in numbers if kind == "ts" and n > 0]
    shift = {"ts": max(stamps) - min(stamps) + 1000, "id": steps["id"] + 1, "step": steps["step"] + 1}
    with target.open("wb") as file:
        file.write(text[: start.end()])
        for copy in range(max(1, round(megabytes * 1e6 / len(text)))):
            if copy:
                file.write(b",\n")
            moved = [b"%d" % (n + copy * shift[kind] if n or kind == "step" else 0) for kind, n in numbers]
            file.write(b"".join(part for pair in zip(pieces, [*moved, b""], strict=True) for part in pair))
        file.write(text[end:])


def _numbers(body: bytes) -> tuple[list[bytes], list[tuple[str, int]]]:
    """The text between the numbers that a copy has to change, and those numbers with their kinds."""
    pieces, numbers, at = [], [], 0
    for match in NUMBER.finditer(body):
        group = 2 if match.group(2) is not None else 4
        kind = "step" if group == 4 else "ts" if b"ts" in match.group(1) else "id"
        pieces.append(body[at : match.start(group)])
        numbers.append((kind, int(match.group(group))))
        at = match.end(group)
    pieces.append(body[at:])
    return pieces, numbers


def _measure(path: Path, arguments: argparse.Namespace) -> dict[str, list[Cost]]:
    """The runs of every reader, in turn, so that a busy machine slows all of them alike."""
    environment = _environment(path.parent / "compiled")
    found: dict[str, list[Cost]] = {}
    for _ in range(arguments.runs):
        for name, command in READERS.items():
            interpreter = arguments.reference_python if name in REFERENCES else sys.executable
            cost = _run([interpreter, *(part.replace("{path}", str(path)) for part in command)], environment)
            if cost is not None:
                found.setdefault(name, []).append(cost)
    return found


def _environment(compiled: Path) -> dict[str, str]:
    """What the readers run in: one thread, and the package's modules compiled, as they are once it is installed."""
    package = Path(__file__).parents[1]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(package), "PYTHONPYCACHEPREFIX": str(compiled)}
    command = [sys.executable, "-m", "compileall", "-q", str(package / "tracelyze")]
    subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL)
    return environment


def _run(command: list[str], environment: dict[str, str]) -> Cost | None:
    """Runs one reader; None if it fails, or its interpreter is not there."""
    if not Path(command[0]).exists():
        return None
    silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    child = os.posix_spawn(command[0], command, environment, file_actions=silent)
    _, status, used = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        return None
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return Cost(used.ru_utime, used.ru_maxrss / unit)


def _report(path: Path, megabytes: float, found: dict[str, list[Cost]]) -> None:
    print(f"\n{path.name}: {megabytes:.0f} MB of JSON, {path.stat().st_size / 1e6:.0f} MB on disk")
    print(f"{'reader':34} {'CPU s':>8} {'from - to':>13} {'ms/MB':>7} {'peak MB':>8} {'CPU x':>6} {'memory x':>8}")
    own: tuple[float, float] | None = None
    for name, costs in found.items():
        cpu, memory = statistics.median(cost.cpu for cost in costs), max(cost.memory for cost in costs)
        own = own or (cpu, memory)
        spread = f"{min(cost.cpu for cost in costs):.2f} - {max(cost.cpu for cost in costs):.2f}"
        ratios = f"{cpu / own[0]:6.1f} {memory / own[1]:8.1f}"
        print(f"{name:34} {cpu:8.2f} {spread:>13} {1e3 * cpu / megabytes:7.1f} {memory:8.0f} {ratios}")
    for name in READERS.keys() - found.keys():
        print(f"{name}: could not be run")


def _packed(path: Path) -> Path:
    packed = path.with_suffix(".json.gz")
    pack = zlib.compressobj(6, wbits=31)
    with path.open("rb") as source, packed.open("wb") as target:
        while block := source.read(1 << 20):
            target.write(pack.compress(block))
        target.write(pack.flush())
    path.unlink()
    return packed


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 500], help="MB of JSON")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--gzip", action="store_true", help="compress the traces first")
    parser.add_argument("--reference-python", default=sys.executable, help="interpreter that has orjson and hta")
    return parser.parse_args()


if __name__ == "__main__":
    main()
