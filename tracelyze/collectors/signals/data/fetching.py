"""Whether a loader's batches draw random numbers, from which states on, and how much memory its workers own."""

from __future__ import annotations

import weakref
from array import array
from typing import Any, NamedTuple

from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.internals.private_names import LOADER_ITERATOR, UNSEEN
from tracelyze.collectors.program import fetches
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of

PASSES = 8  # first passes over a loader that are looked at; then the powers of two
OWN_PASSES = 24  # over all loaders of the training process itself: a loop may make one for each batch
MOST_WORKERS = 64
MAX_ROWS = 20_000


class _Pass(NamedTuple):
    """A pass that runs, or was given up: whoever counts the batches drops the iterator before it says that it ends."""

    iterator: weakref.ref[Any]
    loader: int
    epoch: int
    source: int | None
    parts: list[tuple[int | None, Any]]  # by worker, its notes


class Fetching(Signal):
    name = "fetching"
    needs = (*UNSEEN, LOADER_ITERATOR)
    columns = columns_of("fetches", "time step loader epoch worker source batches moved start second memory")
    about = "Whether a loader's batches draw random numbers, from which states on, and the memory of its workers."
    cost = "0.5 ms a pass"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._passes: ByIdentity[int] = ByIdentity()
        self._pages: ByIdentity[fetches.Page] = ByIdentity()
        self._running: dict[int, _Pass] = {}  # by the iterator's address
        self._sources: list[weakref.ref[Any]] = []
        self._rows = self._own = 0

    def fetching(self, loader: Any, iterator: Any, page: fetches.Page | None) -> None:
        """A pass begins."""
        number = self.progress.iterated
        for address, one in list(self._running.items()):
            if address == id(iterator) or one.iterator() is None:  # workers that persist keep theirs
                self._put(self._running.pop(address))
        epoch = self._passes.get(loader, -1) + 1
        self._passes[loader] = epoch
        if number is None or not (epoch < PASSES or epoch & (epoch - 1) == 0) or self._rows >= MAX_ROWS:
            return
        if page is not None:
            self._pages[iterator] = page
        page = self._pages.get(iterator)
        parts: list[tuple[int | None, Any]]
        if page is not None:
            parts = [(worker, page.of(worker)) for worker in range(min(page.workers, MOST_WORKERS))]
        elif not loader.num_workers and self._own < OWN_PASSES and hasattr(iterator, "_dataset_fetcher"):
            self._own += 1
            words = array("Q", bytes(8 * fetches.WORDS))
            fetcher = iterator._dataset_fetcher
            fetches.enrolled[fetcher] = fetches.Notes(self.torch, fetcher.dataset, words, memory=False)
            parts = [(None, words)]
        else:
            return
        source = self._source(loader.dataset)
        self._running[id(iterator)] = _Pass(weakref.ref(iterator), number, epoch, source, parts)

    def exhausted(self, iterator: Any) -> None:
        if id(iterator) in self._running:
            self._put(self._running.pop(id(iterator)))

    def finished(self) -> None:
        for one in list(self._running.values()):
            self._put(one)

    def _put(self, one: _Pass) -> None:
        for worker, words in one.parts:
            if words[fetches.FETCHES]:
                moved, start, second = fetches.starts(words)
                self._rows += 1
                self.context.emit("fetches", {
                    "time": self.context.now(), "step": self.progress.steps, "loader": one.loader, "epoch": one.epoch,
                    "worker": worker, "source": one.source, "batches": int(words[fetches.FETCHES]), "moved": moved,
                    "start": start, "second": second, "memory": fetches.memory(words) if worker is not None else None,
                })  # fmt: skip

    def _source(self, dataset: Any) -> int | None:
        """The number of a dataset, below what shows a part of it."""
        for _ in range(8):
            inner = dataset.__dict__.get("dataset") if hasattr(dataset, "__dict__") else None
            if inner is None or isinstance(inner, (str, list, tuple, dict)):
                break
            dataset = inner
        try:
            number = next((index for index, known in enumerate(self._sources) if known() is dataset), None)
            if number is None:
                number = len(self._sources)
                self._sources.append(weakref.ref(dataset))
            return number
        except TypeError:  # that nothing can refer to weakly
            return None
