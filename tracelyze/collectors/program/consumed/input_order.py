"""In which order the inputs of a loop without a loader come: does every pass over the data repeat the one before?

Two pieces of each input's memory are read and nothing is computed, at steps that are skipped (recording/fast_path) too.
"""

from __future__ import annotations

import ctypes
from array import array
from typing import Any, NamedTuple

from tracelyze.collectors.program.progress import Progress

PIECE = 64  # bytes
MAX_STEPS = 20_000  # whose inputs are remembered, in 8 bytes each
PASSES = 3  # that have to be alike


class Order(NamedTuple):
    """What the inputs of the latest steps were. `period`: steps of a pass, 0 if none was repeated."""

    steps: int
    period: int
    passes: int
    distinct: int  # different inputs in a pass
    adjoining: float  # share of the inputs that began in memory where the one before ended: slices in a row


class InputOrder:
    """The first input of each step."""

    def __init__(self, torch: Any, progress: Progress) -> None:
        self._tensor: Any = torch.Tensor
        self._strided: Any = torch.strided
        self._progress = progress
        self._keys = array("q")
        self._step = -1
        self._end = 0  # address at which the latest input ends
        self._adjoining = 0

    def called(self, given: Any) -> None:
        """A model was called with this input, and a backward may run through it."""
        progress = self._progress
        if self._step == progress.steps or progress.loader is not None or len(self._keys) >= MAX_STEPS:
            return
        self._step = progress.steps
        if type(given) is self._tensor and given.layout is self._strided and given.is_contiguous():
            size, rows = given.nbytes, given.size(0) if given.dim() else 1
            begin = _address(given) if size else 0
            self._adjoining += begin == self._end > 0
            self._end = begin + size if begin else 0
            if begin and given.is_cpu:
                row = size // rows
                last = max(0, size - PIECE)
                places = min(row // 2, last), min(rows // 2 * row + row // 2, last)
                pieces = [ctypes.string_at(begin + place, min(PIECE, size)) for place in places]
                self._keys.append(hash((size, *pieces)))
                return
        self._keys.append(self._step)  # It cannot be read, and is like no other.

    def found(self) -> Order:
        """How often the latest inputs repeat those before them, step for step."""
        keys = self._keys[::-1]
        count = len(keys)
        period = next((n for n in range(1, count // PASSES + 1) if keys[n] == keys[0] and _repeats(keys, n)), 0)
        passes = distinct = 0
        if period:
            same = next((at for at in range(count - period) if keys[at] != keys[at + period]), count - period)
            passes, distinct = same // period + 1, len(set(keys[:period]))
        return Order(count, period, passes, distinct, self._adjoining / count if count else 0.0)


def _address(tensor: Any) -> int:
    """Where its elements begin; 0 for one that stands for others (torch.func)."""
    try:
        return int(tensor.data_ptr())
    except RuntimeError:
        return 0


def _repeats(keys: array[int], period: int) -> bool:
    return all(keys[at] == keys[at + period] for at in range(period * (PASSES - 1)))
