"""Which calls of a model trained, where that is taken for granted after a while."""

from __future__ import annotations

import sys
from typing import Any

from tracelyze.analyzers.recorded.run import Process

from .conftest import Collect, program

OF_THE_MOMENT = {"time", "time_start", "time_end", "seconds", "overhead", "host_rss", "site"}


def rows(process: Process, table: str) -> list[dict[str, Any]]:
    return [{k: row[k] for k in row if k not in OF_THE_MOMENT} for row in process.tables[table].records()]


def test_what_is_taken_for_granted_is_so(collect: Collect) -> None:
    """Only the call that ends a habit is not seen for what it is: it counts as training, never as an evaluation."""
    options = [f"--signal={name}=every:9" for name in ("gradient_lifecycle", "gradient_norm", "parameters")]
    usual, watched = (
        collect(sys.executable, program("habit.py"), *more, options=tuple(options)).run.processes[0]
        for more in ([], ["--watched"])
    )
    assert [row["name"] for row in usual.tables["events"].records() if row["kind"] == "collector-error"] == []
    assert rows(usual, "steps") == rows(watched, "steps")
    assert max(row["live_graphs"] for row in rows(usual, "steps")) > 20, "graphs that are kept are counted"
    true, seen = rows(watched, "evals"), rows(usual, "evals")
    assert [row["forwards"] for row in true[:6]] == [5, 5, 5, 5, 1, 5]
    assert all(row["forwards"] in (4, 5) for row in seen[:4]), "5 where the call that ends it was to be checked"
    assert seen[4]["forwards"] == 5
    assert [row["model_in_train"] for row in seen[:5]] == [True] * 4 + [False]
    assert seen[4] == true[5]
    assert seen[5:] == true[7:], "the first of the graphs that are kept ends a habit, too"
    assert len(seen) > 10
