"""What to change about a loader that is too slow, and what that is predicted to bring."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.computed.data import draws
from tracelyze.analyzers.computed.throughput import kept_workers, open_files
from tracelyze.analyzers.script.editing import generator_seeds, loader_arguments
from tracelyze.diagnosis import Diff, Setting
from tracelyze.formatting import duration, percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.computed.throughput.waiting import Prediction, Waiting
    from tracelyze.analyzers.recorded.run import Process

RESTART, CHEAPER, WORKERS = "restart", "cheaper", "workers"
PLACES = {RESTART: "site", CHEAPER: "read_by", WORKERS: "made_at"}  # columns of the table loaders: the line to change
_FIRST_WITHOUT_FORK = 14  # Python 3.14 starts processes by forkserver, also on Linux


def of(way: str, predicted: Prediction, process: Process, loader: Mapping[str, Any]) -> tuple[str, str]:
    """The fix, and a sentence on what it brings."""
    guard = "" if forks(process) else f" {GUARD}"
    gain = percent(predicted.share)
    most = "up to " if loader.get("num_workers") else ""  # what a sample takes a worker is known from above only
    if way == RESTART:
        return RESTART_FIX, "The loader is asked for a new iterator in nearly every step; only its first batch is used."
    if open_files.reads_all(loader):
        return open_files.fix(loader, ""), "For each sample a whole array is read and unpacked."
    if way == CHEAPER:
        return CHEAPER_FIX, (
            f"If loading a sample cost no more than reading it from memory, a step would be {most}{gain} shorter."
        )
    count = predicted.workers
    if draws_itself(process, loader):
        guard += f" {SEEDS}"
    processes = f"{count} worker processes" if count > 1 else "a worker process"
    if open_files.held(loader):
        return (
            f"{open_files.fix(loader, processes)}{guard}",
            f"With num_workers={count} a step would be about {gain} shorter.",
        )
    return (
        f"Load in {processes}, so that batches are made while the model computes.{guard}",
        f"With num_workers={count} a step would be about {gain} shorter.",
    )


def waits(seen: Waiting) -> str:
    """A clause on what a step spends waiting: the host's wait, and on a device what its queue did not hide."""
    if not seen.on_device:
        return f"{duration(seen.idle)} of it is spent waiting"
    return f"the device is idle for {duration(seen.idle)} of it while the host waits {duration(seen.wait)}"


def draws_itself(process: Process, loader: Mapping[str, Any]) -> bool:
    """Whether this loader's dataset draws from a generator that it holds: each worker would have a copy of it."""
    return any(part.loader == loader.get("loader") and "own" in part.start for part in draws.parts(process))


def needs_no_more(process: Process, loader: Mapping[str, Any]) -> bool:
    """Whether workers take no more than arguments of the loader: no guard around the script, no seeds of their own."""
    return forks(process) and not draws_itself(process, loader) and not open_files.held(loader)


def setting(way: str, seen: Waiting, predicted: Prediction, process: Process) -> Setting | None:
    """The number of workers as a setting of the script, where that is what to change."""
    right = not seen.loader.get("iterable") and needs_no_more(process, seen.loader)
    return (
        Setting(("num_workers",), (seen.workers,), str(predicted.workers) if right else "") if way == WORKERS else None
    )


def edit(way: str, seen: Waiting, predicted: Prediction, process: Process) -> Diff | None:
    """More workers at the line that makes the loader, where they need neither a guard nor seeds of their own."""
    if way != WORKERS or seen.loader.get("iterable") or not needs_no_more(process, seen.loader):
        return None
    wanted = kept_workers.staying(process, seen.loader, predicted.workers)
    return loader_arguments.with_arguments(process, process.site(seen.loader.get("made_at")), wanted)


def code(way: str, predicted: Prediction, process: Process, loader: Mapping[str, Any]) -> str:
    """The fix as code, empty where it depends on the data."""
    if way == RESTART:
        return (
            "for epoch in range(epochs):\n    for x, y in loader:  # one iterator per epoch\n        train_step(x, y)"
        )
    if open_files.reads_all(loader) or (way == WORKERS and open_files.held(loader)):
        return open_files.code(process, loader)
    if way == CHEAPER:
        return ""
    given: dict[str, object] = {**kept_workers.staying(process, loader, predicted.workers)}
    if draws_itself(process, loader):
        made = loader_arguments.example(process, loader, {**given, "worker_init_fn": "worker_init_fn"})
        return generator_seeds.in_each_worker(process, ["own"]) + made
    return loader_arguments.example(process, loader, given)


def forks(process: Process) -> bool:
    """Whether worker processes start by fork, so that a script needs no guard around its code."""
    version = re.match(r"3\.(\d+)", str(process.facts.get("python") or ""))
    on_linux = str(process.facts.get("platform") or "").startswith("Linux")
    return on_linux and version is not None and int(version[1]) < _FIRST_WITHOUT_FORK


GUARD = (
    "Where processes start by spawn (Windows, macOS, Python 3.14), put the script's code under "
    '`if __name__ == "__main__":` first.'
)
SEEDS = (
    "The dataset draws from a generator that it holds, and each worker gets a copy in the same state: seed it in each "
    "worker, or all workers draw the same numbers."
)
RESTART_FIX = (
    "Make the iterator once per epoch and keep using it: next(iter(loader)) in every step reshuffles all indices and "
    "restarts all workers."
)
CHEAPER_FIX = (
    "Make samples cheaper: decode, parse or resize once and store the result, and use lighter transforms. More "
    "workers would hardly help on these cores."
)
