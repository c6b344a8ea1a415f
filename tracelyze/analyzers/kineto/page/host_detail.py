"""What the host did in the steps that are looked at twice: operators nested by thread, and the script's lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.reading.detail import Detail, innermost, parents
from tracelyze.analyzers.kineto.timeline.categories import Activity, Kind, activity_of
from tracelyze.analyzers.kineto.timeline.table import Array, Floats, Integers, Mask, most_frequent

_PLACE: Final = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): (?P<function>.*)$")
_ENGINE: Final = "autograd::engine"
_SCRIPT: Final = (Activity.PYTHON, Activity.INPUT, Activity.CHECKPOINT)


@dataclass(frozen=True)
class Nest:
    """Ranges of one thread: rows of the detail, in order of start, and the place of each one's parent, -1 for none."""

    rows: Integers
    start: Floats
    end: Floats
    parent: Integers

    def levels(self) -> Integers:
        """Depth of nesting, 0 outermost."""
        depth = np.zeros(len(self.parent), dtype=np.int64)
        for index, parent in enumerate(self.parent.tolist()):
            if parent >= 0:
                depth[index] = depth[parent] + 1
        return depth

    def at(self, times: Floats) -> Integers:
        """The innermost row of the detail that holds each time, -1 for none."""
        found = innermost(self.start, self.end, self.parent, times)
        return np.where(found >= 0, self.rows[np.maximum(found, 0)], -1) if len(self.rows) else found


class HostDetail:
    """Ways into a :class:`detail.Detail`. `main`: the thread of the steps; -1 lets the busiest one be it."""

    def __init__(self, detail: Detail, main: int) -> None:
        self.detail = detail
        is_frame = detail.kind == Kind.FRAME
        self._operators = ~is_frame & (detail.kind != Kind.RUNTIME) & (detail.activity != Activity.STEP)
        self._calls = ~is_frame & (detail.activity != Activity.STEP)
        self._frames = is_frame & np.isin(detail.activity, _SCRIPT)
        self.threads = most_frequent(detail.thread[self._calls])
        self.main = main if main in self.threads or not self.threads else self.threads[0]
        self._frame_thread = self._threads_of_frames(is_frame)
        self._nests: dict[tuple[str, int], Nest] = {}

    def operators(self, thread: int) -> Nest:
        """Operators and annotations of one thread."""
        return self._nest("operators", self._operators, self.detail.thread, thread)

    def calls(self, thread: int) -> Nest:
        """Operators, annotations and runtime calls of one thread."""
        return self._nest("calls", self._calls, self.detail.thread, thread)

    def runtime(self, thread: int) -> Nest:
        """Runtime calls of one thread: launches, copies, waits."""
        return self._nest("runtime", self.detail.kind == Kind.RUNTIME, self.detail.thread, thread)

    def frames(self, thread: int) -> Nest:
        """Functions of the script, and of loaders, on one thread."""
        return self._nest("frames", self._frames, self._frame_thread, thread)

    def is_backward(self, thread: int) -> bool:
        """Whether autograd runs its nodes on this thread."""
        rows = self.operators(thread).rows
        names = self.detail.names
        engine = any(names[name].startswith(_ENGINE) for name in np.unique(self.detail.name[rows]).tolist())
        return engine or bool(self.detail.backward[rows].any())

    def operator_at(self, times: Floats, thread: Array) -> Integers:
        """The innermost operator on `thread` at each time, as a row of the detail; -1 for none."""
        found = np.full(len(times), -1, dtype=np.int64)
        for value in most_frequent(thread):
            mine = np.flatnonzero(thread == value)
            found[mine] = self.operators(value).at(times[mine])
        return found

    def places(self) -> tuple[Integers, list[str]]:
        """For every row of the detail the place in the script that it comes from, -1 for none, and those places.

        From the row's own stack; else from the innermost function of the script that was running on its thread; else,
        within a backward, from the operator whose gradient it computes.
        """
        detail = self.detail
        known: dict[str, int] = {}
        place = np.full(len(detail.start), -1, dtype=np.int64)
        of_stack = [known.setdefault(said, len(known)) if (said := _script_line(s)) else -1 for s in detail.stacks]
        if of_stack:
            stacked = detail.stack >= 0
            place[stacked] = np.array(of_stack, dtype=np.int64)[detail.stack[stacked]]
        of_name: dict[int, int] = {}
        for value in most_frequent(self._frame_thread[self._frames]):
            open_rows = np.flatnonzero((place < 0) & (detail.thread == value) & self._calls)
            frame = self.frames(value).at(detail.start[open_rows])
            for name in np.unique(detail.name[frame[frame >= 0]]).tolist():
                said = spoken(detail.names[name])
                of_name[name] = known.setdefault(said, len(known))
            place[open_rows] = [of_name[int(detail.name[row])] if row >= 0 else -1 for row in frame.tolist()]
        if known:
            self._lend_to_backward(place)
            for thread in self.threads:
                self._hand_down(self.calls(thread), place)
        return place, list(known)

    @staticmethod
    def _hand_down(nest: Nest, place: Integers) -> None:
        """Gives a call without a place of its own that of the operator which makes it."""
        for index in np.flatnonzero((nest.parent >= 0) & (place[nest.rows] < 0)).tolist():
            place[nest.rows[index]] = place[nest.rows[nest.parent[index]]]

    def _lend_to_backward(self, place: Integers) -> None:
        """Gives operators of the backward the place of the forward operator with the same number."""
        detail = self.detail
        forward = np.flatnonzero((detail.sequence >= 0) & ~detail.backward & (place >= 0))
        if not len(forward):
            return
        order = np.lexsort((detail.start[forward], detail.sequence[forward]))
        numbers, rows = detail.sequence[forward][order], forward[order]
        for thread in self.threads:
            nest = self.operators(thread)
            number = detail.sequence[nest.rows].copy()
            number[~detail.backward[nest.rows]] = -1
            for index, parent in enumerate(nest.parent.tolist()):  # what an autograd node calls belongs to the node
                if number[index] < 0 and parent >= 0:
                    number[index] = number[parent]
            found = np.searchsorted(numbers, number, side="right") - 1
            same = (found >= 0) & (number >= 0) & (numbers[np.maximum(found, 0)] == number)
            same &= place[nest.rows] < 0
            place[nest.rows[same]] = place[rows[found[same]]]

    def _threads_of_frames(self, is_frame: Mask) -> Integers:
        """The thread of each row; functions that were recorded under a thread of nobody belong to the main one."""
        thread = self.detail.thread.astype(np.int64)
        recorded = {int(value) for value in np.unique(thread[is_frame])} if is_frame.any() else set()
        orphans = recorded - set(self.threads)
        if orphans and self.main not in recorded:
            thread[is_frame & np.isin(thread, sorted(orphans))] = self.main
        return thread

    def _nest(self, what: str, chosen: Mask, thread: Integers, value: int) -> Nest:
        key = (what, value)
        if key not in self._nests:
            rows = np.flatnonzero(chosen & (thread == value))
            rows = rows[np.lexsort((-self.detail.end[rows], self.detail.start[rows]))]
            start, end = self.detail.start[rows], self.detail.end[rows]
            self._nests[key] = Nest(rows, start, end, parents(start, end))
        return self._nests[key]


def spoken(frame: str) -> str:
    """`train.py:41 step` for `train.py(41): step`; anything else as it is."""
    place = _PLACE.match(frame)
    return f"{place['file']}:{place['line']} {place['function']}".strip() if place else frame


def _script_line(stack: str) -> str:
    """The innermost line of the script in a stack whose frames stand innermost first."""
    frames = (frame.strip() for frame in stack.split(";"))
    return next((spoken(one) for one in frames if one and activity_of(Kind.FRAME, one) is not Activity.DROPPED), "")
