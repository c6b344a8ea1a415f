"""What a run of many ranks costs to judge: `python benchmarks/many_ranks.py --ranks 200 --steps 240`.

Makes a run directory of RANKS process folders with STEPS steps each (a healthy data-parallel training; the steps of
eight ranks are drawn, the other ranks link to their files), and judges it with `tracelyze diagnose --format json` in a
process of its own. Prints seconds of wall time and of processor time, each also for one process folder, and the most
memory that the process held.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tracelyze import schema

DRAWN = 8


def steps(count: int, seed: int) -> pa.Table:
    """The table steps of one rank."""
    random = np.random.default_rng(seed)
    step = np.arange(1, count + 1)
    same = np.ones(count)
    numbers = {
        "optimizer": 0 * same, "step": step, "time": 0.05 * step + random.normal(0, 1e-4, count),
        "seconds": random.normal(0.05, 0.002, count),
        "loss": 0.3 + 2 * np.exp(-4 * step / count) + random.normal(0, 0.05, count),
        "backwards": same, "grad_norm": np.exp(random.normal(0, 0.3, count)), "parameters": 8 * same,
        "grads_none": 0 * same,
        "grads_zero": 0 * same, "grads_nonfinite": 0 * same, "grads_carried": 0 * same, "grads_cleared": 0 * same,
        "lr": 0.01 * same, "batch_size": 32 * same, "model_in_train": same, "modules_sensitive": 3 * same,
        "modules_in_train": 3 * same, "loader": 0 * same, "loader_wait": np.abs(random.normal(0.001, 1e-4, count)),
        "loader_batches": same, "loader_first": step % 1000 == 1, "host_rss": 5e8 + random.normal(0, 2e5, count),
        "live_graphs": same, "overhead": 0.0004 * same, "autocast": 0 * same,
    }  # fmt: skip
    types = {"float64": pa.float64(), "bool": pa.bool_(), "int64": pa.int64(), "int32": pa.int32()}
    columns = {}
    for name, values in numbers.items():
        declared = schema.STEPS.column(name).type
        columns[name] = pa.array(values.astype("bool" if declared == "bool" else declared), types.get(declared))
    return pa.table(columns)


def make(folder: Path, ranks: int, count: int) -> None:
    """The run directory."""
    drawn = folder / "drawn"
    drawn.mkdir(parents=True)
    tables = {}
    for seed in range(min(DRAWN, ranks)):
        tables[seed] = drawn / f"{seed}.parquet"
        pq.write_table(steps(count, seed), tables[seed], compression="zstd")
    sites = {
        "site": [1],
        "role": ["backward"],
        "file": ["train.py"],
        "line": [41],
        "function": ["main"],
        "source": ["b()"],
    }
    end = {"time": [0.05 * count], "kind": ["exit"], "name": ["finished"], "value": [0.0]}
    for name, rows in (("sites", sites), ("events", end)):
        types = {"string": pa.string(), "float64": pa.float64()}
        spec = schema.table(name)
        fields = pa.schema(
            [(key, types.get(spec.column(key).type) or getattr(pa, spec.column(key).type)()) for key in rows]
        )
        tables[name] = drawn / f"{name}.parquet"
        pq.write_table(pa.table(rows, schema=fields), tables[name])
    run = folder / "run"
    for rank in range(ranks):
        process = run / f"rank{rank:05d}-attempt0-pid{1000 + rank}"
        process.mkdir(parents=True)
        facts = {"schema_version": 1, "rank": rank, "world_size": ranks, "pid": 1000 + rank, "host": f"node{rank // 8}"}
        (process / schema.PROCESS_FILE).write_text(json.dumps(facts | {"clock": {"zero": 1.7e9}, "launcher": "job"}))
        os.link(tables[rank % DRAWN], process / "steps.parquet")
        for name in ("sites", "events"):
            os.link(tables[name], process / f"{name}.parquet")
    (run / schema.RUN_FILE).write_text(json.dumps({"schema_version": 1, "command": ["torchrun", "train.py"]}))


def main() -> None:
    """Make, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=200)
    parser.add_argument("--steps", type=int, default=240)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        make(Path(folder), given.ranks, given.steps)
        began = time.monotonic()
        command = [sys.executable, "-m", "tracelyze", "diagnose", str(Path(folder) / "run"), "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        wall = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    diagnosis = json.loads(done.stdout)
    per = 1000 / given.ranks
    print(f"{diagnosis['run']['ranks']} ranks, {given.steps:,} steps each: verdict {diagnosis['verdict']}")
    print(f"wall {wall:.1f} s ({wall * per:.1f} ms a rank), processor {cpu:.1f} s ({cpu * per:.1f} ms a rank)")
    print(f"most memory {used.ru_maxrss / 1024:.0f} MiB, JSON {len(done.stdout) / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
