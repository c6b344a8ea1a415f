"""The row stream: what was written is read back exactly, whatever byte the file was cut at."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracelyze import schema
from tracelyze.analyzers.recorded.columns import complete_batches
from tracelyze.collectors.storage import stream
from tracelyze.collectors.storage.stream import TableStream, record_batch, to_parquet

ROOT = Path(__file__).parents[3]
VALUES = {
    "bool": st.booleans(),
    "int8": st.integers(-128, 127),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=True, allow_infinity=True),
    "string": st.text(max_size=20),
}


def rows_of(table: schema.Table) -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries({}, optional={c.name: st.none() | VALUES[c.type] for c in table.columns})
    return st.lists(row, min_size=1, max_size=12)


def same(a: Any, b: Any) -> bool:
    both_nan = isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
    return both_nan or a == b


@pytest.mark.parametrize("table", schema.TABLES, ids=lambda table: table.name)
def test_every_value_survives_and_null_is_not_nan(table: schema.Table) -> None:
    @settings(max_examples=40, deadline=None)
    @given(rows_of(table))
    def check(rows: list[dict[str, Any]]) -> None:
        read = record_batch(table, rows).to_pylist()
        for row, back in zip(rows, read, strict=True):
            assert all(same(row.get(column.name), back[column.name]) for column in table.columns)

    check()


def write(folder: Path, batches: list[list[dict[str, Any]]]) -> Path:
    table = TableStream(schema.SAMPLES)
    table.folder = folder
    for batch in batches:
        for row in batch:
            table.append(row)
        table.flush()
    table.close(convert=False)
    return folder / "samples.arrows"


@pytest.mark.slow
def test_a_cut_anywhere_leaves_exactly_the_complete_batches(tmp_path: Path) -> None:
    """At every length, by our reader and by Arrow's own."""
    path = write(tmp_path, [[{"time": float(10 * i + j), "step": j} for j in range(i + 1)] for i in range(3)])
    whole = path.read_bytes()
    expected = [float(10 * i + j) for i in range(3) for j in range(i + 1)]
    seen = []
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        times = [time for batch in complete_batches(path) for time in batch.column("time").to_pylist()]
        if cut % 37 == 0:
            assert times == times_by_arrow(path)
        assert times == expected[: len(times)]
        seen.append(len(times))
    assert seen == sorted(seen)
    assert set(seen) == {0, 1, 3, 6}, "whole batches only"


def times_by_arrow(path: Path) -> list[float]:
    """The times in the stream, as a program reads them that knows nothing of tracelyze."""
    times: list[float] = []
    try:
        with pyarrow.ipc.open_stream(path) as reader:
            while True:
                times += reader.read_next_batch().column("time").to_pylist()
    except (StopIteration, pyarrow.ArrowInvalid, OSError):
        return times


@pytest.mark.parametrize("table", schema.TABLES, ids=lambda table: table.name)
def test_zeros_in_place_of_what_a_power_cut_lost_are_no_rows(table: schema.Table, tmp_path: Path) -> None:
    """Cut anywhere in the last of three batches and filled up with zeros: the first two remain, or all if whole."""
    filler = {"bool": True, "string": "text", "float64": 1.5}
    written = TableStream(table)
    written.folder = tmp_path
    path = tmp_path / f"{table.name}.arrows"
    for batch in range(3):
        for index in range(9):
            missing = [column.name for column in table.columns[1::3]] if index % 2 else []
            row = {c.name: filler.get(c.type, 7 * batch + 100) for c in table.columns if c.name not in missing}
            written.append(row)
        written.flush()
        if batch == 1:
            start = path.stat().st_size
    written.close(convert=False)
    whole, expected = path.read_bytes(), rows_in(path)
    assert len(expected) == 27
    for cut in range(start, len(whole), 61):
        path.write_bytes(whole[:cut] + bytes(len(whole) - cut))
        read = rows_in(path)
        assert read in (expected[:18], expected)


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [row for batch in complete_batches(path) for row in batch.to_pylist()]


def test_parquet_has_the_same_rows_and_the_stream_is_gone(tmp_path: Path) -> None:
    path = write(tmp_path, [[{"time": 1.0, "host_rss": 5}, {"time": 2.0}], [{"time": math.nan}]])
    to_parquet(path)
    assert not path.exists()
    rows = pyarrow.parquet.read_table(tmp_path / "samples.parquet").to_pylist()
    assert [row["host_rss"] for row in rows] == [5, None, None]
    assert math.isnan(rows[2]["time"])


def test_a_long_stream_is_split_into_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SEGMENT_BYTES", 60_000)
    table = TableStream(schema.SAMPLES)
    table.folder = tmp_path
    for start in range(0, 2000, 100):
        for index in range(start, start + 100):
            table.append({"time": float(index)})
        table.flush()
    table.close(convert=True)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files[0] == "samples-00001.parquet"
    assert "samples.parquet" in files
    assert 3 <= len(files) <= 8
    tables = [pyarrow.parquet.read_table(tmp_path / name) for name in ["samples.parquet", *files[:-1]]]
    times = [row["time"] for table in tables for row in table.to_pylist()]
    assert times == [float(index) for index in range(2000)]


def test_a_step_takes_few_bytes(tmp_path: Path) -> None:
    """20,000 steps of values that change as a training's do; the README and docs state the size of a million."""
    spec = importlib.util.spec_from_file_location("size_on_disk", ROOT / "benchmarks/size_on_disk.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules["size_on_disk"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    size = module.write(20_000, tmp_path)
    assert 100 < size.raw < 450
    assert 30 < size.parquet < 110
    assert size.files == 1
    assert pyarrow.parquet.read_table(tmp_path / "steps.parquet").num_rows == 20_000
