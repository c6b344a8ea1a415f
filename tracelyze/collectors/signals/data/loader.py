"""DataLoaders: their settings once, and how long each step waited for their batches."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.internals.private_names import LOADER_ITERATOR
from tracelyze.collectors.program.lines import definitions, sample_generators, sample_lines
from tracelyze.collectors.program.lines.loops import stream_loops
from tracelyze.collectors.program.loading import early_ranks, open_files
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.tensors import fingerprints
from tracelyze.collectors.tensors.readback import EventPair

MAX_WAITS = 100  # for batches of other trainings, until those step
MAX_UNUSED = 10_000  # waits that are kept where nothing steps: a long evaluation
NO_WAITS = (None, None, None, None)


class _Pass:
    """What is known of an iterator: the number of its loader, and the position of the batch to come."""

    __slots__ = ("number", "position")

    def __init__(self, number: int) -> None:
        self.number = number
        self.position = 0


class Wait(NamedTuple):
    """One wait for a batch. `device`: marks on the device around it, where they were set."""

    loader: int
    seconds: float
    first: bool
    device: EventPair | None


MAX_ASKED_AGAIN = 100  # times that an iterator was asked again after its end, which are written down


class Loader(Signal):
    """A loader whose batch was in hand when backward was called feeds the training; waits for others are not its.

    On a CUDA device two marks are put behind what is queued: one as the wait begins, one as the batch is there. The
    device reaches the first when it has nothing left to do, so the time between them is how long it stood still; behind
    a full queue it reaches both at once. They stand on the stream on which the optimizer steps.
    """

    name = "loader"
    needs = (LOADER_ITERATOR,)
    inactive = ("before_backward", "after_backward", "after_step")
    pausable = ("waiting",)
    copied_columns = ()
    fast_columns = ("loader", "loader_wait", "loader_batches", "loader_first")
    about = "Settings of DataLoaders, and how long every step waited for their batches."
    cost = "2 us a batch"
    columns = ("steps.loader", "steps.loader_wait", "steps.device_wait", "steps.loader_batches", "steps.loader_first")

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._made: ByIdentity[tuple[Any, ...]] = ByIdentity()  # its line, that which called for it, and early_rank
        self._batches_of: ByIdentity[int | None] = ByIdentity()  # by sampler of batches: the line of its loader
        self._numbers: ByIdentity[int] = ByIdentity()
        self._passes: ByIdentity[_Pass] = ByIdentity()  # by iterator
        self._asked_again: ByIdentity[int] = ByIdentity()  # by iterator that had no more: how often since then
        self._count = 0
        self._batch_sizes: dict[int, int | None] = {}  # by loader
        self._last_in_hand = False  # the loader is exhausted, but what it fetched ahead is still to be used
        self._ahead: dict[int, int] = {}  # by loader: batches that the steps so far did not use yet
        self._training: set[int] = set()
        self._trainings: dict[int, weakref.WeakSet[Any]] = {}  # by loader: the trainings that it feeds
        self._waits: list[Wait] = []
        self._turned: dict[int, float] = {}  # by loader: seconds between its last batch and the one to come
        self._stream: Any = None
        self._idle_from: Any = None

    def loader_made(self, loader: Any) -> None:
        """A DataLoader was constructed. One around another, as a framework makes it, has the line of that other one."""
        batches = _batches(loader)
        site, called = self._batches_of.get(batches), None
        early = early_ranks.asked_by(self.torch, loader)
        if site is None:
            site = self.program.sites.here("dataloader")
            called = self.program.sites.around("loader-call", "loader-maker", bare=early is not None)
            if loader.batch_size is not None and batches is not None:  # Its sampler of batches is its own.
                self._batches_of[batches] = site
        self._made[loader] = site, called, early

    def iterate(self, loader: Any, iterator: Any) -> None:
        """`iter(loader)` returned `iterator`."""
        self.activate()
        number = self._numbers.get(loader)
        if number is None:
            number = self._numbers[loader] = self._count
            self._count += 1
            row = describe(loader, number, self.program.sites.here("loader"))
            self._batch_sizes[number] = row["batch_size"]
            sites = self.program.sites
            row["made_at"], row["called_at"], row["early_rank"] = self._made.get(loader) or (None,) * 3
            row["read_by"] = definitions.reader(loader.dataset, row["iterable"], sites)
            definitions.switches(loader.dataset, sites)
            row["collated_by"] = definitions.collator(loader.collate_fn, sites)
            copied_once = bool(row["num_workers"] and row["persistent_workers"])
            own = None if row["iterable"] else sample_generators.of(loader.dataset, sites, copied_once)
            row["own_generator"], row["stored"] = own or (None, None)
            row["open_file"], row["open_kind"], row["opened_at"] = open_files.of(loader.dataset, sites) or (None,) * 3
            row["sample_at"] = sample_lines.sample(loader.dataset, loader.collate_fn, sites)
            row["ignores_index"] = None if row["iterable"] else sample_lines.ignores_index(loader.dataset)
            sample_lines.draws(loader.dataset, loader.collate_fn, sites)
            if row["iterable"]:
                sample_lines.asked_when_made(loader.dataset, sites)
                stream_loops.note(loader.dataset, sites)
            sample_lines.worker_seed(getattr(loader, "worker_init_fn", None), sites)
            if own is not None:
                row["stored_prints"] = sample_generators.prints_of_stored(self.torch, loader.dataset)
            self.context.emit("loaders", row)
        self.progress.iterated = number
        self._passes[iterator] = _Pass(number)
        if iterator in self._asked_again:  # Persistent workers keep theirs for the next pass.
            del self._asked_again[iterator]
        self._ahead.pop(number, None)  # What an earlier pass has left over is used by nobody.

    def turned(self, iterator: Any, seconds: float) -> None:
        """Starting or stopping its workers took `seconds`, for which the first batch to come is waited longer."""
        current = self._passes.get(iterator)
        if current is not None:
            self._turned[current.number] = self._turned.get(current.number, 0.0) + seconds

    def waiting(self, iterator: Any) -> None:
        """The device reaches this mark when it has done all that was queued before: from then on it waits too."""
        self._idle_from = None
        if self._stream is None:
            self.pause()  # until a training steps on a device
            return
        if self.context.fast_path.on:  # Nobody would read it: of most steps the host's wait alone is taken.
            return
        current = self._passes.get(iterator)
        trains = not self._training or (current is not None and current.number in self._training)
        if trains and not self.torch.cuda.is_current_stream_capturing():
            self._idle_from = self._mark()

    def _mark(self) -> Any:
        event = self.torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def batch(self, iterator: Any, seconds: float, batch: Any) -> None:
        """The iterator handed out `batch` after `seconds` of waiting."""
        current = self._passes.get(iterator)
        if current is None:
            return
        number, position, idle, program = current.number, current.position, None, self.program
        current.position = position + 1
        if self._idle_from is not None:
            idle = EventPair(self.torch, self._idle_from, self._mark(), "device_wait")
            self._idle_from = None
        if self._turned:
            seconds += self._turned.pop(number, 0.0)
        waits = self._waits
        waits.append(tuple.__new__(Wait, (number, seconds, position == 0, idle)))  # Wait() would be a call in Python
        if len(waits) > MAX_UNUSED:
            del waits[: MAX_UNUSED // 2]
        fields = fingerprints.fields(self.torch, batch)
        program.batches.handed_out(number, position, self._batch_sizes[number], fields, batch)
        self._last_in_hand = False
        if self.progress.loader != number:
            self._in_hand(number)

    def exhausted(self, iterator: Any) -> None:
        """The iterator had no more batches. One that is asked again will never have any."""
        asked = self._asked_again.get(iterator)
        self._asked_again[iterator] = 0 if asked is None else asked + 1
        if asked is not None and asked < MAX_ASKED_AGAIN:
            self.context.record_event("exhausted-again", "", value=self.program.sites.here("exhausted"))
        current = self._passes.get(iterator)
        self._last_in_hand = current is not None and self.program.batches.exhausted(current.number)
        if not self._last_in_hand:
            self._in_hand(None)

    def _in_hand(self, loader: int | None) -> None:
        if self.progress.loader != loader:
            self.context.fast_path.leave()  # The skipped part of this step used the loader before
            self.progress.loader = loader

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        if self.progress.loader is not None:
            self._training.add(self.progress.loader)

    def after_backward(self, roots: tuple[Any, ...]) -> None:
        """A training has the loaders whose batches its models were called with."""
        training, calls = self.program.trainings.current, self.program.calls.reached
        if training is not None and calls and calls[0].loader is not None:
            self._training.add(calls[0].loader)
            self._trainings.setdefault(calls[0].loader, weakref.WeakSet()).add(training)

    def _loaders_of_others(self, training: Any) -> set[int]:
        """The loaders that feed other trainings than this one."""
        return {loader for loader, fed in self._trainings.items() if len(fed) and training not in fed}

    def fast_values(self, tracked: Any, time: float) -> tuple[Any, ...]:
        waits, self._waits = self._waits, []
        if len(waits) == 1 and not self._last_in_hand:
            loader, seconds, first, _ = waits[0]
            if loader in self._training:
                ahead = self._ahead or self.program.batches.any_ahead
                count = 1 + self._used_later(loader) if ahead else 1
                return (loader, seconds, count, first) if count else NO_WAITS
        waits = [wait for wait in waits if wait.loader in self._training]
        return self._over(waits) if waits or self._last_in_hand else NO_WAITS

    def after_step(self, tracked: Any, row: dict[str, Any]) -> None:
        waits = [wait for wait in self._waits if wait.loader in self._training]
        self._waits = []
        if waits and self.program.trainings.several:
            others = self._loaders_of_others(tracked.training)
            self._waits = [wait for wait in waits if wait.loader in others][-MAX_WAITS:]
            waits = [wait for wait in waits if wait.loader not in others]
        self._stream = self.torch.cuda.current_stream() if tracked.on_cuda else None
        if self._stream is not None:
            self.resume()
        for wait in waits:
            if wait.device is not None:
                self.context.defer(wait.device)
        values = self._over(waits) if waits or self._last_in_hand else NO_WAITS
        row.update(zip(self.fast_columns, values, strict=True))

    def _over(self, waits: list[Wait]) -> tuple[Any, ...]:
        """The step that used these batches is over: the columns `fast_columns`."""
        loader = waits[-1].loader if waits else self.progress.loader
        loaders = {wait.loader for wait in waits} if waits else {loader} if loader is not None else set()
        count = len(waits) + sum([self._used_later(one) for one in loaders])
        if self._last_in_hand and (not count or loader not in self._ahead):
            self._last_in_hand = False
            self._in_hand(None)
        if not count:
            return NO_WAITS
        seconds, first = sum([wait.seconds for wait in waits]), any(wait.first for wait in waits)
        return loader, seconds, count, first

    def _used_later(self, loader: int) -> int:
        """Batches of a loader that were fetched before this step and used in it, less those fetched for later ones."""
        before, now = self._ahead.pop(loader, 0), self.program.batches.ahead(loader)
        if now:
            self._ahead[loader] = now
        return before - now


def batches_per_pass(loader: Any) -> int | None:
    """How many batches a pass over a DataLoader has; None for a stream, whatever its dataset says.

    The samplers are asked, not the loader: `len(loader)` of a stream is noted by torch, which from then on warns when
    the stream gives more than that.
    """
    batches = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    if _is_stream(loader) or not hasattr(batches, "__len__"):
        return None
    try:
        return len(batches)
    except Exception as error:  # a sampler of the script's own, which may raise what it likes
        if raised_by_a_signal_handler(error):
            raise
        return None


def describe(loader: Any, number: int, site: int | None) -> dict[str, Any]:
    """The settings of a DataLoader as a row of the table loaders."""
    batches = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    batch_size = loader.batch_size if loader.batch_size is not None else getattr(batches, "batch_size", None)
    return {
        "loader": number,
        "dataset": _dataset(loader),
        "iterable": _is_stream(loader),
        "length": batches_per_pass(loader),
        "batch_size": batch_size if isinstance(batch_size, int) else None,
        "num_workers": loader.num_workers,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(loader.persistent_workers),
        "prefetch_factor": loader.prefetch_factor,
        "drop_last": bool(loader.drop_last),
        "sampler": type(_sampler(loader)).__name__,
        "shuffled": _shuffles(_sampler(loader)),
        "takes_epoch": _takes_epoch(loader),
        "site": site,
    }


def _dataset(loader: Any) -> str:
    """The class of the dataset; of one that torch's Subset selects from, as random_split does, the one within."""
    dataset = loader.dataset
    for _ in range(definitions.MAX_DEPTH):
        within = getattr(dataset, "__dict__", {}).get("dataset")
        if type(dataset).__name__ != "Subset" or not type(dataset).__module__.startswith("torch.") or within is None:
            break
        dataset = within
    return type(dataset).__name__


def _is_stream(loader: Any) -> bool:
    return any(kind.__name__ == "IterableDataset" for kind in type(loader.dataset).__mro__)


def _shuffles(sampler: Any) -> bool | None:
    """Whether a sampler of torch's own draws an order; None for a script's own."""
    asked = getattr(sampler, "shuffle", None)  # DistributedSampler
    drawing = ("RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler")
    kinds = {kind.__name__ for kind in type(sampler).__mro__ if kind.__module__.startswith("torch.")}
    if isinstance(asked, bool) and "DistributedSampler" in kinds:
        return asked
    return True if kinds.intersection(drawing) else False if "SequentialSampler" in kinds else None


def _sampler(loader: Any) -> Any:
    """What decides the order of the samples: Accelerate hides it inside of the sampler of batches that it shards, and
    datasets that hand out whole batches get a sampler of batches as their sampler. One of the script's own orders them
    as it likes: only a sampler within it that shuffles tells anything."""
    batches = _batches(loader)
    sampler = getattr(batches, "sampler", None)
    if batches is loader.sampler or any(kind.__module__.startswith("torch.") for kind in _iterates(batches)):
        return loader.sampler if sampler is None else sampler
    return sampler if sampler is not None and _shuffles(sampler) else batches


def _iterates(batches: Any) -> list[type]:
    """The class that defines how a sampler of batches is iterated."""
    return [kind for kind in type(batches).__mro__ if "__iter__" in kind.__dict__][:1]


def _takes_epoch(loader: Any) -> str | None:
    """What of a loader is to be told the epoch, where that has a set_epoch and was not told to keep the order."""
    batches = loader.batch_sampler
    within = getattr(batches, "sampler", None)
    for name, sampler in (("sampler", loader.sampler), ("batch_sampler", batches), ("batch_sampler.sampler", within)):
        if callable(getattr(sampler, "set_epoch", None)):
            told = [getattr(sampler, name, None) for name in ("shuffle", "_shuffle")]
            return None if False in [one for one in told if isinstance(one, bool)] else name
    return None


def _batches(loader: Any) -> Any:
    """The innermost sampler of batches; the sampler of a loader that has none."""
    batches = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    while getattr(batches, "batch_sampler", None) is not None:
        batches = batches.batch_sampler
    return batches
