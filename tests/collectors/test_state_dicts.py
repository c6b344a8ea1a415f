"""Weights that are handed out and taken in: what is recorded of it, and that nobody notices."""

from __future__ import annotations

import sys
from typing import Any

from tracelyze.collectors.signals.model.state_loads import renaming

from .conftest import Collect, program, run_plain


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
        (9, 8, 8, 9, 0, 10, "module.", ""),  # torch does not miss a BatchNorm's num_batches_tracked
        (9, 8, 8, 9, 0, 10, "", "module."),
        (1, 8, 7, 0, 0, 10, None, None),
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
