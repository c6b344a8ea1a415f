"""Files that a dataset holds open, which forked workers would share."""

from __future__ import annotations

import io
import sqlite3
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Dataset, Subset

from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.loading import open_files

SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()


class Holds(Dataset[Any]):
    def __init__(self, held: Any) -> None:
        self.size = 4
        self.held = held  # filled here

    def __getitem__(self, index: int) -> Any:
        return index


def found(dataset: Any) -> tuple[str, str, str] | None:
    rows: list[dict[str, Any]] = []
    held = open_files.of(dataset, Sites(rows.append))
    if held is None:
        return None
    return held[0], held[1], next(SOURCE[row["line"] - 1].strip() for row in rows if row["site"] == held[2])


@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: Subset(one, [0, 1])])
def test_an_open_file_is_named_with_the_line_that_fills_it(tmp_path: Path, wrap: Any) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    (tmp_path / "a.bin").write_bytes(b"1")
    archive, plain = np.load(tmp_path / "a.npz"), (tmp_path / "a.bin").open("rb")
    packed, base = zipfile.ZipFile(tmp_path / "a.npz"), sqlite3.connect(":memory:")
    for one in (archive, plain, packed, base, [plain], {"a": archive}):
        name, kind, line = found(wrap(Holds(one))) or ("", "", "")
        assert (name, line) == ("held", "self.held = held  # filled here")
        inner = next(iter(one.values())) if isinstance(one, dict) else one[0] if isinstance(one, list) else one
        assert kind == type(inner).__name__
    for one in (archive, plain, packed, base):
        one.close()
    assert found(Holds(plain)) is None, "closed again"


def test_what_lies_in_memory_is_no_open_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    for one in (None, np.zeros(3), mapped, io.BytesIO(b"1"), io.StringIO("1"), "path", [np.zeros(3)], {"x": 1}):
        assert found(Holds(one)) is None
    assert found(SimpleNamespace()) is None
    assert found(range(4)) is None
