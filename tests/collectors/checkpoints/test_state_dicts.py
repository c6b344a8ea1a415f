"""Weights that are handed out and taken in: what is recorded of it, and that nobody notices."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.conftest import Collect, program, run_plain
from tracelyze.collectors.signals.checkpoints.state_loads import renaming


def test_loads_are_recorded_and_go_as_they_would(collect: Collect) -> None:
    plain = run_plain(sys.executable, program("state_dicts.py"))
    done = collect(sys.executable, program("state_dicts.py"))
    assert done.process.stdout == plain.stdout != ""
    (process,) = done.run.processes
    assert [row for row in process.events.records() if row["kind"] == "collector-error"] == []
    rows = list(process.tables["loads"].records())
    names = ("given", "expected", "missing", "unexpected", "own", "taken_at", "given_prefix", "expected_prefix")
    seen = [tuple(row[name] for name in names) for row in rows]
    assert {row["step"] for row in rows} == {10}
    assert seen == [
        (9, 9, 0, 0, 0, 5, None, None),  # a copy
        (9, 9, 0, 0, 9, 5, None, None),  # the model's own
        (9, 9, 0, 0, 9, 5, None, None),  # the same in another dictionary
        (9, 9, 9, 9, 0, 10, "module.", ""),  # with the num_batches_tracked of a BatchNorm, which torch does not miss
        (9, 9, 9, 9, 0, 10, "", "module."),
        (1, 9, 8, 0, 0, 10, None, None),
        (2, 2, 0, 0, 0, 10, None, None),
        (9, 9, 0, 0, 9, 10, None, None),  # a shallow copy of the model has the model's own layers
    ]
    assert [row["from_other"] for row in rows] == [None, False, None, None, True, None, True, True]
    sources = [process.site(row["site"]).source for row in rows]  # type: ignore[union-attr]
    assert sources[1] == "print(model.load_state_dict(alias))"


def found(missing: list[str], unexpected: list[str]) -> tuple[Any, ...]:
    return tuple(renaming(missing, unexpected).get(name) for name in ("given_prefix", "expected_prefix", "renamed"))


def test_a_change_of_prefix_is_found() -> None:
    names = ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert found(names, [f"module.{name}" for name in names]) == ("module.", "", 4)
    assert found([f"_orig_mod.{name}" for name in names], names) == ("", "_orig_mod.", 4)
    assert found([f"body.{name}" for name in names], [f"net.encoder.{name}" for name in names]) == (
        "net.encoder.",
        "body.",
        4,
    )
    assert found(names, ["epoch", "model"]) == (None, None, None)
    assert found([*names, "head.weight"], [f"module.{name}" for name in names]) == ("module.", "", 4)
    assert found([], names) == found(names, []) == (None, None, None)


MERGED = """
import sys
import torch
from torch import nn
def build(hidden, classes):
    inner = [nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 8), nn.Linear(8, hidden), nn.Linear(hidden, 8)]
    return nn.Sequential(*inner, nn.ReLU(), nn.Linear(8, classes))
kind, file = sys.argv[1:]
saved = build(12 if kind == "sizes" else 16, 5 if kind == "head" else 4).state_dict()
torch.save({"model": {("module." if kind == "prefix" else "") + name: one for name, one in saved.items()}}, file)
model = build(16, 4)
read = torch.load(file)["model"]
own = model.state_dict()
if kind == "in place":
    for name, one in read.items():
        own[name].copy_(one)
else:
    own.update({name: one for name, one in read.items() if name in own and one.shape == own[name].shape})
model.load_state_dict(own)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    model(torch.rand(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("kind", "kept", "inner", "prefix"),
    [
        ("prefix", 10, 0, "module."),
        ("sizes", 6, 2, None),
        ("head", 2, 0, None),
        ("in place", None, 0, None),
        ("fits", None, 0, None),
    ],
)
def test_what_a_model_keeps_of_its_own_when_a_file_is_merged(
    kind: str, kept: int | None, inner: int, prefix: str | None, collect: Collect, tmp_path: Path
) -> None:
    done = collect(sys.executable, "-c", MERGED, kind, str(tmp_path / "net.pt"))
    (process,) = done.run.processes
    rows = [json.loads(row["text"]) for row in process.events.records() if row["kind"] == "kept-weights"]
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    assert [(row["kept"], row["layers"], row.get("given_prefix")) for row in rows] == [(kept, inner, prefix)] * bool(
        kept
    )
    assert not rows or (rows[0]["file"], rows[0]["expected"]) == ("net.pt", 10)
