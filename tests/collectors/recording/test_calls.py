"""Which calls of a model trained, where that is taken for granted after a while."""

from __future__ import annotations

import sys
from typing import Any

from tests.collectors.conftest import Collect, program
from tracelyze.analyzers.recorded.run import Process

OF_THE_MOMENT = {
    "time",
    "time_start",
    "time_end",
    "seconds",
    "backward_seconds",
    "overhead",
    "host_rss",
    "site",
    "read_site",
}
SIZE = {"batch_size": None}


def rows(process: Process, table: str) -> list[dict[str, Any]]:
    return [{k: row[k] for k in row if k not in OF_THE_MOMENT} for row in process.tables[table].records()]


def test_what_is_taken_for_granted_is_so(collect: Collect) -> None:
    """Also the call that ends a habit is seen for what it is: by whether its graph outlives the next call."""
    options = [f"--signal={name}=every:9" for name in ("gradient_lifecycle", "gradient_norm", "parameters")]
    usual, watched = (
        collect(sys.executable, program("habit.py"), *more, options=tuple(options)).run.processes[0]
        for more in ([], ["--watched"])
    )
    assert [row["name"] for row in usual.tables["events"].records() if row["kind"] == "collector-error"] == []
    both = list(zip(rows(usual, "steps"), rows(watched, "steps"), strict=True))
    assert [(one, other) for one, other in both if one | SIZE != other | SIZE] == []
    assert sum(one != other for one, other in both) <= 1, "a graph that is kept looks like one that is yet to train"
    assert max(row["live_graphs"] for row in rows(usual, "steps")) > 20, "graphs that are kept are counted"
    true, seen = rows(watched, "evals"), rows(usual, "evals")
    assert [row["forwards"] for row in true[:6]] == [5, 5, 5, 5, 1, 5]
    assert len(true) - len(seen) <= 2, "the first of the graphs that are kept ends a habit, too"
    assert seen[:6] == true[:6]
    assert len(seen) > 10
