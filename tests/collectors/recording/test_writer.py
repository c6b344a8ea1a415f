"""The thread that writes a recording, beside the training thread that hands it rows and facts."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from tracelyze import schema
from tracelyze.collectors.storage.writer import Writer
from tracelyze.collectors.system import fatal_signals, identity


@pytest.fixture
def slow_renames(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every rename of a finished file takes 0.1 s, as on a network disk. The names of the files, as renames begin."""
    begun: list[str] = []
    rename = os.replace

    def slow(source: Any, target: Any) -> None:
        begun.append(Path(target).name)
        time.sleep(0.1)
        rename(source, target)

    monkeypatch.setattr(identity.os, "replace", slow)
    return begun


def test_facts_that_arrive_while_the_first_ones_are_written(tmp_path: Path, slow_renames: list[str]) -> None:
    writer = Writer(time.perf_counter, lambda: 0, lambda: None)
    writer.opened = True
    try:
        writer.start(tmp_path, {"rank": 0, "local_rank": 0, "attempt": 0, "pid": 1, "thread": 1, "host": "here"})
        writer.emit("events", {"kind": "first"})
        while not slow_renames:
            time.sleep(0.001)
        writer.add_facts({"backwards": 3})
        writer.emit("events", {"kind": "second"})
        writer.end()
        writer.close()
        assert not writer.off, "two writers of one file ended the recording"
    finally:
        writer.end()
        fatal_signals.forget()
    (folder,) = (entry for entry in tmp_path.iterdir() if entry.is_dir())
    assert json.loads((folder / schema.PROCESS_FILE).read_text())["backwards"] == 3
    assert not list(folder.glob("*.tmp"))
    rows = pyarrow.parquet.read_table(folder / f"events{schema.TABLE_SUFFIX}").to_pylist()
    assert [row["kind"] for row in rows] == ["first", "second"]
