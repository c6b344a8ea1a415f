"""A bucket behind an S3 server: moto's, on this machine, is asked over HTTP by pyarrow's file system."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import tracelyze
from tracelyze.fleet import discovery, table

pytest.importorskip("moto", reason="moto, which serves the bucket, is not installed")
pytest.importorskip("flask", reason="moto's server needs flask")
pytestmark = [pytest.mark.starts_programs, pytest.mark.slow]

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
NAMES = ("healthy", "missing-zero-grad")


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What stands at the end of a URI to reach the server."""
    for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("EC2_METADATA_DISABLED", "true")):
        monkeypatch.setenv(f"AWS_{name}", value)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(300):
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.poll() is None, "moto's server ended"
            time.sleep(0.1)
        yield f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
    finally:
        server.kill()
        server.wait()


def test_runs_in_an_s3_bucket(options: str, tmp_path: Path) -> None:
    endpoint = options.partition("=")[2].partition("&")[0]
    bucket = fs.S3FileSystem(endpoint_override=endpoint, scheme="http", region="us-east-1", allow_bucket_creation=True)
    bucket.create_dir("bucket")
    for name in NAMES:
        for file in sorted((SAMPLES / name).rglob("*")):
            if file.is_file():
                with bucket.open_output_stream(f"bucket/runs/{file.relative_to(SAMPLES).as_posix()}") as stream:
                    stream.write(file.read_bytes())
    place = f"s3://bucket/runs{options}"
    found = discovery.runs_below([place])
    assert found == [f"s3://bucket/runs/{name}{options}" for name in NAMES]
    done = subprocess.run(
        [sys.executable, "-m", "tracelyze", "fleet", place, "-o", "fleet.parquet", "--workers", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [
        row
        for name, run in zip(NAMES, found, strict=True)
        for row in table.rows_of(run, tracelyze.diagnose(SAMPLES / name))
    ]
    assert pq.read_table(tmp_path / "fleet.parquet").equals(table.to_arrow(rows))
