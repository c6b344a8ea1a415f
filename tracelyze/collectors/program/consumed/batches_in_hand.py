"""Which batch of a DataLoader a call of a model uses.

Nearly always it is the batch that was handed out last. But Accelerate fetches each batch before the one before it is
used, to know which is the last one, and the Trainer of transformers fetches all micro-batches of a step at once. Such
batches wait here in the order in which they came. A call's batch is recognised by its tensors; where these were copied
to a device, batches are taken in order.
"""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from typing import Any

from tracelyze.collectors.program.progress import Progress

MAX_SEARCHED = 8  # entries of a batch among which a sequence of samples is looked for
MAX_WAITING = 64  # batches: no training loop fetches more of them ahead


class Batch:
    """One batch that a loader handed out. Holds its tensors weakly."""

    # Defaults on the class, because most batches keep most of them.
    samples: int | None = None
    positions: int | None = None  # the first dimension, where that counts positions and not samples
    one_each = False  # Samples are not stacked: there is a tensor for each, as images of different sizes are.
    place: tuple[Any, ...] = ()  # loader, epoch, ...: set where a signal numbers them
    used = False

    def __init__(self, loader: int, epoch: int, forwards: int, fields: list[tuple[str, weakref.ref[Any]]]) -> None:
        self.loader = loader
        self.epoch = epoch  # number of the pass over any loader
        self.forwards = forwards  # of the process when it was handed out
        self.fields = fields


class _Queue:
    """The batch of one loader that is in use, and those that were fetched ahead of it, the oldest first."""

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self.ahead = False  # whether the program fetches batches before it uses those that it has
        self.forwards = 0  # calls of models in the process, up to the latest one that was not skipped
        self.place = 0  # memory address of that call's input

    def advance(self, given: Any) -> None:
        """Drop the batches before the one that a call uses. `given` is the first tensor of the call's input.

        A batch is recognised by its tensors. If none is, the oldest batch is in use, or the next one, where the oldest
        was used already and the input lies at another place in memory.
        """
        batches, place = self.batches, _place(given)
        known = next((at for at, one in enumerate(batches) if any(ref() is given for _, ref in one.fields)), None)
        if known is None:
            known = int(batches[0].used and place != self.place)
        self.place = place
        for _ in range(known):
            batches.popleft()

    def follow_skipped(self, forwards: int) -> None:
        """Drop the batches that skipped calls (recording/fast_path) have used: each call used one."""
        batches, skipped = self.batches, forwards - self.forwards
        if skipped <= 0:
            return
        self.forwards = forwards
        if self.ahead and batches:
            for _ in range(min(skipped - (not batches[0].used), len(batches) - 1)):
                batches.popleft()
            batches[0].used = True


class BatchesInHand:
    """The batches that loaders have handed out and that are still to be used, by loader."""

    def __init__(self, progress: Progress) -> None:
        self.any_ahead = False  # Batches of some loader were once fetched before those at hand were used.
        self.newest: Batch | None = None  # that any loader has handed out
        self._progress = progress
        self._queues: dict[int, _Queue] = {}
        self._epochs = 0
        self._positions_first: dict[int, bool] = {}  # by loader: whether batches begin with the dimension of positions
        self._one_each: dict[int, bool] = {}  # by loader: whether batches are sequences with a tensor for each sample
        self._stacked: set[int] = set()  # loaders of which neither is true: the first dimension counts samples

    def handed_out(
        self, loader: int, position: int, batch_size: int | None, fields: list[tuple[str, Any]], whole: Any
    ) -> Batch:
        """A loader handed out the batch `whole`, of which these are the tensors; `position` in the pass, from 0."""
        forwards, reference = self._progress.forwards, weakref.ref
        if position == 0:
            self._epochs += 1
        held = [(name, reference(tensor)) for name, tensor in fields]
        self.newest = batch = Batch(loader, self._epochs, forwards, held)
        if loader in self._stacked and fields and (shape := fields[0][1].shape):
            batch.samples = shape[0]
        else:
            self._measure(batch, position, batch_size, fields)
            self._count(batch, position, batch_size, whole)
        queue = self._queues.get(loader)
        if queue is None or position == 0:
            queue = self._queues[loader] = _Queue()
        elif queue.ahead and queue.forwards != forwards:
            queue.follow_skipped(forwards)
        queue.forwards = forwards
        batches = queue.batches
        if position == 1 and batches and batches[-1].forwards == forwards:
            queue.ahead = self.any_ahead = True  # the second batch of a pass, and no model was called since the first
        if not queue.ahead:
            batches.clear()
        elif len(batches) >= MAX_WAITING:
            batches.popleft()
        batches.append(batch)
        return batch

    def exhausted(self, loader: int) -> bool:
        """The loader has no more batches. Returns whether batches that were fetched ahead may still be used."""
        queue = self._queues.get(loader)
        if queue is not None and queue.ahead:
            return True
        self._queues.pop(loader, None)
        return False

    def ahead(self, loader: int) -> int:
        """How many of its batches were fetched ahead and are still to be used."""
        queue = self._queues.get(loader)
        if queue is None or not queue.ahead:
            return 0
        if queue.forwards != self._progress.forwards:
            queue.follow_skipped(self._progress.forwards)
        return sum([not one.used for one in queue.batches])

    def waiting(self, batch: Batch) -> bool:
        """Whether this batch may still be used."""
        queue = self._queues.get(batch.loader)
        return queue is not None and batch in queue.batches

    def used_by(self, given: Any) -> Batch | None:
        """The batch that a call is given, whose first tensor is `given`; None without a loader."""
        loader = self._progress.loader
        queue = self._queues.get(loader) if loader is not None else None
        if queue is None or not queue.batches:
            return None
        queue.forwards = self._progress.forwards
        batches = queue.batches
        if len(batches) > 1:
            queue.advance(given)
        batches[0].used = True
        return batches[0]

    def used_by_skipped(self) -> Batch | None:
        """The batch that the latest call used, if that call was skipped (recording/fast_path)."""
        loader = self._progress.loader
        queue = self._queues.get(loader) if loader is not None else None
        if queue is None or not queue.batches:
            return None
        queue.follow_skipped(self._progress.forwards)
        queue.batches[0].used = True
        return queue.batches[0]

    def _measure(self, batch: Batch, position: int, batch_size: int | None, fields: list[tuple[str, Any]]) -> None:
        """Set the number of samples of a batch. The first dimension counts positions where sequences are stacked so."""
        shapes = [tensor.shape for _, tensor in fields if tensor.dim()]
        if not shapes:
            return
        if batch.loader not in self._positions_first and position == 0 and batch_size:  # the first batch is whole
            second = all(shape[min(1, len(shape) - 1)] == batch_size for shape in shapes)
            self._positions_first[batch.loader] = second and len(shapes[0]) > 1 and shapes[0][0] != batch_size
        if self._positions_first.get(batch.loader) and len(shapes[0]) > 1:
            batch.samples, batch.positions = int(shapes[0][1]), int(shapes[0][0])
        else:
            batch.samples = int(shapes[0][0])

    def _count(self, batch: Batch, position: int, batch_size: int | None, whole: Any) -> None:
        """Set the number of samples of a batch that holds them one by one, in a sequence of tensors."""
        if batch.loader not in self._one_each:
            if position or not batch_size or batch.samples is None:
                return
            one_each = batch.samples != batch_size and not batch.positions
            self._one_each[batch.loader] = one_each and _sequence_length(whole) == batch_size
            if not one_each and not self._positions_first.get(batch.loader, True):
                self._stacked.add(batch.loader)
        if self._one_each[batch.loader] and (count := _sequence_length(whole)):
            batch.samples, batch.one_each = count, True


def _sequence_length(whole: Any) -> int:
    """The length of the first sequence of tensors in a batch, or of the batch, if it is one; 0 without."""
    inner = whole.values() if isinstance(whole, dict) else whole if isinstance(whole, (tuple, list)) else ()
    for value in (whole, *itertools.islice(inner, MAX_SEARCHED)):
        if isinstance(value, (tuple, list)) and value and hasattr(value[0], "dim"):
            return len(value)
    return 0


def _place(tensor: Any) -> int:
    """The memory address of a tensor; 0 for one without."""
    try:
        return int(tensor.data_ptr())
    except (AttributeError, RuntimeError, NotImplementedError):
        return 0
