"""Rows of events as numpy columns that grow without leaving holes in the memory of the process."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.signedinteger[Any]]
Mask = npt.NDArray[np.bool_]

_FEWEST_ROWS: Final = 4096


class Table:
    """Columns of equal length. `limit` is the most rows it takes; `full`: more were offered.

    `reduce` (a table's columns to the mask of rows to keep) is called now and then while the table grows.
    """

    def __init__(self, limit: int, columns: dict[str, str], reduce: Callable[[Table], Array] | None = None) -> None:
        self.rows = 0
        self.full = False
        self._limit = limit
        self._reduce = reduce
        self._reduce_at = 1 << 16
        self._columns: dict[str, Array] = {
            name: _pages(_FEWEST_ROWS, np.dtype(dtype)) for name, dtype in columns.items()
        }

    @classmethod
    def unbounded(cls, columns: dict[str, str]) -> Table:
        """A table for rows that were counted before."""
        return cls(1 << 62, columns)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self._columns)

    def __getitem__(self, name: str) -> Array:
        """Column `name`, shape [rows]; a view, so not to be kept while the table grows."""
        return self._columns[name][: self.rows]

    def __len__(self) -> int:
        return self.rows

    def append(self, **values: Array) -> None:
        """Adds rows; every column is given, all of one length."""
        count = len(next(iter(values.values())))
        if self.rows + count > self._limit:
            self.full = True
            count = self._limit - self.rows
        if count <= 0:
            return
        needed = self.rows + count
        for name, column in self._columns.items():
            if needed > len(column):
                grown = _pages(max(needed, 2 * len(column)), column.dtype)
                grown[: self.rows] = column[: self.rows]
                self._columns[name] = column = grown
            column[self.rows : needed] = values[name][:count]
        self.rows = needed
        if self._reduce is not None and self.rows >= self._reduce_at:
            self.reduce()
            self._reduce_at = max(1 << 16, self.rows + self.rows // 2)

    def reduce(self) -> None:
        """Drops the rows that the table's `reduce` does not keep."""
        if self._reduce is not None and self.rows:
            self.keep(self._reduce(self))

    def keep(self, rows: Array) -> None:
        """Keeps the rows of a mask, or takes rows in a new order, shape [rows kept]."""
        kept = 0
        for column in self._columns.values():
            chosen = column[: self.rows][rows]
            kept = len(chosen)
            column[:kept] = chosen
        self.rows = kept

    def drop(self, name: str) -> None:
        """Gives up a column that is no longer needed, and its memory."""
        self._columns.pop(name, None)

    def finish(self) -> None:
        """To be called once, when nothing more will be added."""
        self.reduce()


def _pages(rows: int, dtype: np.dtype[Any]) -> Array:
    """An uninitialised column on pages of its own: those never written to take no memory, all go back when it is freed.

    Columns that grow on the ordinary heap leave holes in it that add up to half of what they hold.
    """
    return np.frombuffer(mmap.mmap(-1, rows * dtype.itemsize), dtype=dtype)


def slices(rows: int, size: int = 1 << 16) -> Iterator[slice]:
    """The rows of a table in pieces: what is worked out for them together bounds the memory that it takes."""
    return (slice(first, first + size) for first in range(0, rows, size))


def most_frequent(values: Array, most: int = 64) -> list[int]:
    """The distinct values that occur most, at most `most`: what is done once for each of them stays bounded."""
    lowest, counts = _counts(values)
    ordered = np.argsort(-counts, kind="stable")[:most]
    return [int(value) + lowest for value in ordered if counts[value]]


def distinct(values: Array) -> list[int]:
    """The distinct whole numbers among `values`, in order; numbers of a table's labels, so not far apart."""
    lowest, counts = _counts(values)
    return [int(value) + lowest for value in np.flatnonzero(counts)]


def _counts(values: Array) -> tuple[int, Integers]:
    """The lowest of whole numbers that are not far apart, and how often it and each one above it occurs."""
    if not len(values):
        return 0, np.zeros(0, dtype=np.int64)
    lowest = int(values.min())
    return lowest, np.bincount(values - lowest if lowest else values)


def median(values: Array) -> float:
    """The median, nan of nothing. That of numpy imports its masked arrays, a tenth of what a small trace takes."""
    count = len(values)
    middle = (count - 1) // 2, count // 2
    return float(np.partition(values, middle)[list(middle)].mean()) if count else float("nan")


def groups(keys: Array) -> tuple[Array, Integers]:
    """The distinct rows of `keys` (shape [n, columns]) in order, and for each row which of them it is, shape [n].

    What np.unique does, whose first call imports the masked arrays: a tenth of what a small trace takes in all.
    """
    order = np.lexsort(keys.T[::-1])
    ordered = keys[order]
    fresh = np.ones(len(keys), dtype=bool)
    fresh[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    group = np.empty(len(keys), dtype=np.int64)
    group[order] = np.cumsum(fresh) - 1
    return ordered[fresh], group


class Numbering(dict[Any, int]):
    """Numbers for keys, in the order in which they are first met; `keys_met` is the way back.

    At most `limit` keys get numbers of their own: the rest share one. So a file cannot fill the memory with names.
    """

    def __init__(self, limit: int, rest: Any) -> None:
        super().__init__()
        self.keys_met: list[Any] = []
        self._limit = limit
        self._rest = rest

    def __missing__(self, key: Any) -> int:
        number = len(self.keys_met)
        if number >= self._limit:
            if number == self._limit:
                self.keys_met.append(self._rest)
            return self._limit
        self.keys_met.append(key)
        self[key] = number
        return number


class Threads(Numbering):
    """Numbers for (process, thread). Thread numbers are text in old traces, and in some of them only in part."""

    def __missing__(self, key: tuple[int | str, int | str]) -> int:
        process, thread = key
        if isinstance(thread, str) and thread.isascii() and thread.isdigit() and len(thread) < 19:
            number = self[process, int(thread)]
            if len(self) < self._limit:
                self[key] = number
            return number
        return super().__missing__(key)
