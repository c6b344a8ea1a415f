"""What `tracelyze fleet` costs, and that its table is the one of a loop: `benchmarks/many_runs.py --runs 2000 --loop`.

Links the recorded runs of sample_traces into RUNS folders and judges them in one call on two cores. Prints seconds of
wall time and of processor time, each also for one run, and the most memory that a process held. With --loop it judges
them once more by a loop over `tracelyze.diagnose` and compares the tables, row by row.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

import tracelyze
from tracelyze.fleet import discovery, table

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"


def make(folder: Path, count: int) -> None:
    """The runs, in turn one of each sample."""
    samples = sorted(path.parent for path in SAMPLES.glob("*/run.json"))
    for number in range(count):
        sample = samples[number % len(samples)]
        shutil.copytree(sample, folder / f"{number:05d}-{sample.name}", copy_function=os.link)


def main() -> None:
    """Make, judge, print, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--loop", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name) / "runs"
        make(folder, given.runs)
        written = Path(name) / "fleet.parquet"
        began = time.monotonic()
        command = ["fleet", str(folder), "-o", str(written), "--workers", str(given.workers)]
        subprocess.run([sys.executable, "-m", "tracelyze", *command], capture_output=True, check=True)
        wall = time.monotonic() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu, per = used.ru_utime + used.ru_stime, 1000 / given.runs
        print(f"{given.runs:,} runs on {given.workers} processes, {pq.read_metadata(written).num_rows:,} rows")
        print(f"wall {wall:.1f} s ({wall * per:.0f} ms a run), processor {cpu:.1f} s ({cpu * per:.0f} ms a run)")
        print(f"most memory of a process {used.ru_maxrss / 1024:.0f} MiB", flush=True)
        if given.loop:
            began = time.process_time()
            rows = [
                row
                for run in discovery.runs_below([str(folder)])
                for row in table.rows_of(run, tracelyze.diagnose(run))
            ]
            cpu = time.process_time() - began
            same = pq.read_table(written).equals(table.to_arrow(rows))
            print(f"a loop over diagnose: processor {cpu:.1f} s; the tables are {'equal' if same else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
