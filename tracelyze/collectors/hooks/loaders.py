"""Where the collector stands in torch's DataLoader: its construction, its iterators, the batches that they hand out."""

from __future__ import annotations

import functools
import multiprocessing
import os
import weakref
from collections.abc import Callable
from time import perf_counter
from typing import Any

from tracelyze.collectors.internals import private_names
from tracelyze.collectors.internals.compiler import wrappers
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings
from tracelyze.collectors.program import fetches
from tracelyze.collectors.program.loading.timed_lines import TimedLines
from tracelyze.collectors.recording.recorder import Recorder
from tracelyze.collectors.system.program_signals import own_errors_dropped

# Set by `collect` to 0, and to 1 for what is spawned while a loader starts its workers: they are left without hooks.
# The environment is one for all threads, so it is only ever a value that changes, and not in os.environ.
SPAWNED_WORKER = "TRACELYZE_SPAWNED_WORKER"


def install(torch: Any, recorder: Callable[[], Recorder], calling: Any) -> None:
    """Wrap the methods on their classes; `recorder()` is that of the calling thread.

    While a batch is made `calling.watch` is False: a module that transforms its samples is no call of a model.
    """
    loader = torch.utils.data.DataLoader
    loader.__init__ = _construction(loader.__init__, recorder)
    loader.__iter__ = _iteration(loader.__iter__, recorder)
    wrappers.extend((loader.__init__, loader.__iter__))
    iterator = private_names.find(torch, private_names.LOADER_ITERATOR)
    if iterator is None:
        return
    iterator.__next__ = _advance(iterator.__next__, recorder, calling)
    wrappers.append(iterator.__next__)
    for name in (private_names.MAP_FETCHER, private_names.STREAM_FETCHER):
        fetcher = private_names.find(torch, name)
        if fetcher is not None:
            fetcher.fetch = _fetch(torch, fetcher.fetch)
            wrappers.append(fetcher.fetch)


def _construction(made: Callable[..., None], recorder: Callable[[], Recorder]) -> Callable[..., None]:
    """Where a loader is made."""

    @unseen_by_warnings
    @functools.wraps(made)
    def __init__(*args: Any, **kwargs: Any) -> None:
        try:
            made(*args, **kwargs)
            recorder().fire("loader_made", args[0])
        except BaseException as error:
            leave_no_frame(error)
            raise

    return __init__


def _iteration(begin: Callable[[Any], Any], recorder: Callable[[], Recorder]) -> Callable[[Any], Any]:
    """Where a pass over a loader begins, and its workers start."""
    clock = perf_counter

    @unseen_by_warnings
    @functools.wraps(begin)
    def __iter__(self: Any) -> Any:
        try:
            start = clock()
            page = fetches.Forking.page = _page(self, recorder())
            try:
                batches = _begun(begin, self, page)
            finally:
                fetches.Forking.page = None  # The workers that were forked have it.
            seconds = clock() - start
            recorder().writer.threads.resume()  # after workers were forked: a batch that never comes is noticed
            recorder().fire("iterate", self, batches)
            recorder().fire("fetching", self, batches, page)
            recorder().fire("turned", batches, seconds)
            return batches
        except BaseException as error:
            leave_no_frame(error)
            raise

    return __iter__


def _advance(advance: Callable[[Any], Any], recorder: Callable[[], Recorder], calling: Any) -> Callable[[Any], Any]:
    """Where the loop waits for the next batch."""
    clock, forking = perf_counter, fetches.Forking

    @unseen_by_warnings
    @functools.wraps(advance)
    def __next__(self: Any) -> Any:
        try:
            recording = recorder()
            if not recording.dispatcher.nobody_listens("waiting"):
                recording.fire("waiting", self)
            progress, watch, noted = recording.progress, calling.watch, forking.spent
            start = clock()
            calling.watch, progress.awaited = False, (weakref.ref(self), start)
            try:
                batch = advance(self)
            except StopIteration:
                seconds = clock() - start
                recorder().fire("turned", self, seconds)
                recorder().fire("exhausted", self)
                raise
            finally:
                calling.watch, progress.awaited = watch, None
            noted = forking.spent - noted  # no wait of the training's
            recording.guard.overhead.seconds += noted
            recording.fire("batch", self, clock() - start - noted, batch)
            return batch
        except BaseException as error:
            leave_no_frame(error)
            raise

    return __next__


def _page(loader: Any, recorder: Recorder) -> fetches.Page | None:
    """A page for the workers that are about to be started; None where none are, or by spawn."""
    if not loader.num_workers or recorder.off or getattr(loader, "_iterator", None) is not None:
        return None
    method = _start_method(loader)
    if method == "forkserver":
        with own_errors_dropped:
            return fetches.page_with_a_path(loader.num_workers)
    return None if method == "spawn" else fetches.Page(loader.num_workers)


def _fetch(torch: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Where a dataset is asked for the samples of a batch: in a worker, or in the training process."""
    enrolled, forking = fetches.enrolled, fetches.Forking

    @unseen_by_warnings
    @functools.wraps(original)
    def fetch(self: Any, *args: Any, **kwargs: Any) -> Any:
        notes = None
        with own_errors_dropped:  # a dataset that answers with exceptions of its own
            notes = enrolled.get(self) if forking.page is None else fetches.in_worker(torch, self)
            if notes is not None and notes.only_counts:
                notes.words[fetches.FETCHES] += 1
                notes = None
            elif notes is not None:
                begin = perf_counter()
                notes.begins()
                forking.spent += perf_counter() - begin
        timed = fetches.timed.get(self) if len(fetches.timed) else None
        if timed is not None and not timed.begin():
            timed = None
        try:
            made = original(self, *args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        finally:
            if timed is not None:
                _timed(self, timed)
        if notes is not None:
            begin = perf_counter()
            with own_errors_dropped:
                notes.ends()
            forking.spent += perf_counter() - begin
        return made

    return fetch


def _timed(fetcher: Any, timed: TimedLines) -> None:
    """A batch was timed."""
    timed.end()
    if timed.done:
        fetches.timed.pop(fetcher)
    if fetches.Forking.page is None:
        fetches.Forking.spent += timed.spent
        timed.spent = 0.0
        return
    with own_errors_dropped:
        fetches.tell(timed)


def _start_method(loader: Any) -> str:
    """How its workers are started. Asked so that the program may still choose how to start processes."""
    context = loader.multiprocessing_context or multiprocessing
    return str(context.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0])


def _begun(begin: Callable[[Any], Any], loader: Any, page: fetches.Page | None) -> Any:
    """The iterator of a loader, whose workers know their page, or are left without hooks."""
    if page is not None and page.path:
        return _handed_on(begin, loader, page)
    if loader.num_workers and SPAWNED_WORKER in os.environ and _start_method(loader) == "spawn":
        return _without_hooks(begin, loader)
    return begin(loader)


def _handed_on(begin: Callable[[Any], Any], loader: Any, page: fetches.Page) -> Any:
    """Workers of the fork server are told of the page by what they are given to call first."""
    held = vars(loader)
    if "worker_init_fn" not in held:
        return begin(loader)
    function = held["worker_init_fn"]
    joining = held["worker_init_fn"] = fetches.Joining(page, function)
    try:
        batches = begin(loader)
        if getattr(batches, "_worker_init_fn", None) is joining:
            batches._worker_init_fn = function
        return batches
    finally:
        held["worker_init_fn"] = function


def _without_hooks(begin: Callable[[Any], Any], loader: Any) -> Any:
    os.putenv(SPAWNED_WORKER, "1")
    try:
        return begin(loader)
    finally:
        os.putenv(SPAWNED_WORKER, "0")
