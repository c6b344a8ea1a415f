"""Sets of ranges against the plainest possible reference: a ruler with one mark per microsecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracelyze.analyzers.kineto.timeline import intervals
from tracelyze.analyzers.kineto.timeline.intervals import outermost
from tracelyze.analyzers.kineto.timeline.table import Table

LENGTH = 60
pairs = st.lists(st.tuples(st.integers(0, LENGTH), st.integers(0, 15)), max_size=12)


def arrays(found: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([a for a, _ in found], dtype=float)
    return start, start + np.array([b for _, b in found], dtype=float)


def ruler(found: list[tuple[int, int]]) -> np.ndarray:
    marks = np.zeros(LENGTH + 20, dtype=bool)
    for start, length in found:
        marks[start : start + length] = True
    return marks


@given(pairs)
def test_merged_ranges_are_sorted_disjoint_and_cover_the_same(found):
    start, end = intervals.merge(*arrays(found))
    assert (start[1:] > end[:-1]).all()
    assert intervals.length((start, end)) == ruler(found).sum()


@given(pairs, st.integers(1, 5), st.data())
def test_pieces_are_what_merging_at_once_gives(found, size, data):
    start, end = arrays(sorted(found))
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(found), max_size=len(found))), dtype=bool)
    pieces = [intervals.EMPTY, *intervals.merged(start, end, chosen, size)]
    for side, whole in enumerate(intervals.merge(start[chosen], end[chosen])):
        assert np.concatenate([piece[side] for piece in pieces]).tolist() == whole.tolist()


@given(pairs, pairs)
def test_union_covers_what_either_covers(first, second):
    both = intervals.union([intervals.merge(*arrays(first)), intervals.merge(*arrays(second))])
    assert intervals.length(both) == (ruler(first) | ruler(second)).sum()


@given(pairs, pairs)
def test_covered_is_the_overlap_with_each_window(found, windows):
    start, end = arrays(windows)
    covered = intervals.covered(intervals.merge(*arrays(found)), start, end)
    marks = ruler(found)
    assert covered.tolist() == [marks[int(a) : int(b)].sum() for a, b in zip(start, end, strict=True)]


@given(pairs, st.lists(st.integers(0, LENGTH), max_size=8))
def test_contains_counts_both_ends_in(found, moments):
    held = intervals.contains(intervals.merge(*arrays(found)), np.array(moments, dtype=float))
    assert held.tolist() == [any(a <= moment <= a + b for a, b in found) for moment in moments]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(0, 2)), min_size=1, max_size=20))
def test_outermost_drops_only_ranges_that_lie_in_another_of_their_thread(rows):
    table = Table(100, {"start": "f8", "end": "f8", "thread": "i4"})
    start = np.array([row[0] for row in rows], dtype=float)
    end = start + np.array([row[1] for row in rows])
    thread = np.array([row[2] for row in rows])
    table.append(start=start, end=end, thread=thread)
    table.keep(outermost(table))
    for one in set(thread.tolist()):
        kept = table["thread"] == one
        whole = intervals.merge(start[thread == one], end[thread == one])
        assert intervals.length(intervals.merge(table["start"][kept], table["end"][kept])) == intervals.length(whole)
        ends = table["end"][kept]
        assert (ends[1:] > ends[:-1]).all()
