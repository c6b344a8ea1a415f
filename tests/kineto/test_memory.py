"""A table of memory changes is thinned while a trace is read; what is said of the memory must stay the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tracelyze.analyzers.kineto.timeline.memory import SEGMENT, changes_worth_keeping, memory_use
from tracelyze.analyzers.kineto.timeline.steps import Steps
from tracelyze.analyzers.kineto.timeline.table import Table
from tracelyze.analyzers.kineto.timeline.trace import MEMORY_COLUMNS, Trace

CHANGE = st.tuples(st.integers(0, 30), st.integers(0, 1), st.integers(0, 3), st.integers(0, 3))


def table(rows: list[tuple[int, int, int, int]]) -> Table:
    found = Table.unbounded(MEMORY_COLUMNS)
    time, device, used, free = (np.array(values) for values in zip(*rows, strict=True))
    found.append(start=time, device=device, allocated=used * SEGMENT, reserved=(used + free) * SEGMENT)
    return found


def said(memory: Table) -> object:
    empty = Table.unbounded({"start": "float64"})
    trace = Trace(Path("trace.json"), empty, empty, {}, [], [], [], [], [], {}, memory)
    start = np.arange(0.0, 28.0, 4.0)
    return memory_use(trace, Steps("marks", np.arange(7), start, start + 4.0, 0))


@example([(0, 0, 1, 0), (0, 1, 0, 2), (0, 0, 0, 2)], 1)  # two devices that hold as much, at the same time
@given(st.lists(CHANGE, min_size=1, max_size=60), st.integers(1, 59))
def test_thinned_changes_of_memory_say_the_same(rows: list[tuple[int, int, int, int]], cut: int) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    whole = said(table(rows))
    thinned = table(rows[:cut])
    thinned.keep(changes_worth_keeping(thinned))
    if rows[cut:]:
        rest = table(rows[cut:])
        thinned.append(**{name: rest[name] for name in rest.names})
        thinned.keep(changes_worth_keeping(thinned))
    assert said(thinned) == whole


def test_changes_that_say_nothing_new_are_left_out() -> None:
    steady = [(moment, 0, 1 + moment % 2, 2 - moment % 2) for moment in range(10_000)]
    memory = table([*steady, (10_000, 0, 2, 4)])
    memory.keep(changes_worth_keeping(memory))
    assert memory["start"].tolist() == [0, 1, 9_999, 10_000]
