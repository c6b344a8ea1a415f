"""The fleet on a real Ray cluster on this machine, of two workers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
PROGRAM = """
import sys, ray, ray.data, tracelyze
from tracelyze import fleet
from tracelyze.fleet import discovery, local, ray_cluster, table, writing
from pathlib import Path
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
runs = discovery.runs_below([sys.argv[1]])
here = fleet.joined(local.judge(runs, 1))
there = fleet.joined(ray_cluster.judge(runs, num_cpus=1, concurrency=2))
assert there.equals(here), "the tables differ"
mapped = ray.data.from_items([{"path": run} for run in runs]).map(tracelyze.diagnose_row, num_cpus=1, concurrency=2)
verdicts = {row["run"]: row["verdict"] for row in mapped.iter_rows()}
assert verdicts == dict(zip(here["run"].to_pylist(), here["verdict"].to_pylist())), verdicts
writing.write(there, Path("fleet.parquet"))

def on_ray(judge, tasks):
    remote = ray.remote(num_cpus=1)(judge)
    return ray.get([remote.remote(task) for task in tasks])

for run in runs:
    if not run.endswith("broken"):
        assert tracelyze.diagnose(run, mapper=on_ray).to_dict() == tracelyze.diagnose(run).to_dict(), run
"""


@pytest.mark.starts_programs
@pytest.mark.slow
def test_a_ray_cluster_of_two_workers_gives_the_same_table(tmp_path: Path) -> None:
    pytest.importorskip("ray.data", reason="ray is not installed: pip install 'tracelyze[ray]'")
    for name in ("healthy", "missing-zero-grad", "fp16-overflow"):
        shutil.copytree(SAMPLES / name, tmp_path / "runs" / name)
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "run.json").write_text("[")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "runs"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = pq.read_table(tmp_path / "fleet.parquet")
    assert set(found["status"].to_pylist()) == {"fired", "passed", "skipped", "error"}
