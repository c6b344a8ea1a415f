"""What the always-on hooks cost per training step, measured within one process: `python benchmarks/hooks.py`.

One process trains a workload of `workloads.py` and takes turns, block by block of steps, with the hooks in place and
with torch as it is without them. So a machine whose speed drifts, or is shared, slows both alike. Printed are

    us added    per step: mean of the differences between neighbouring blocks, leaving out the largest and the smallest
                tenth, and its standard error; in brackets the difference between the quickest tenths of the blocks with
                and without. Processor time of the training thread, of the whole process (the thread
                that writes, garbage collection), wall time
    stated      what the collector itself says in the column `overhead`, over the same blocks: mean and median
    calls       Python and C function calls, and bytecodes of the collector, that a step takes more: not a matter of the
                machine's mood

`--profile` prints which functions of the collector those are instead. `--always-on` leaves out the sampled signals,
which have a budget of their own.

`--loops` compares loops of several shapes (`loops.py`: accumulation, a GAN, calls without autograd, evaluations,
Accelerate, the Trainer, Lightning) around the same small model, a row each, per backward: how many steps took the fast
path, processor time of the training thread with and without hooks in turns, what the collector states, and its
bytecodes: the mean of all iterations, and their median, which is nearly always that of an iteration on the fast path.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import importlib.util
import multiprocessing
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loops
import torch
import torch.nn.functional as F
import workloads

from tracelyze.collectors.hooks import install
from tracelyze.collectors.options import CollectOptions
from tracelyze.collectors.signals import SIGNALS
from tracelyze.collectors.storage import stream

WARM_UP = 500  # steps: the first 100 are looked at closely, and then the dear signals find out what they cost
DATA = torch.utils.data
HOMES = (
    torch.nn.Module,
    torch.autograd,
    F,
    DATA.DataLoader,
    DATA.dataloader._BaseDataLoaderIter,
    torch.nn.utils,
    torch.nn.utils.clip_grad,
    DATA._utils.fetch._MapDatasetFetcher,
    *(kind for kind in vars(torch.optim.lr_scheduler).values() if isinstance(kind, type) and "step" in vars(kind)),
)


class Switch:
    """Puts what the collector has wrapped, and its hooks on all optimizers, in place and takes it out again."""

    def __init__(self, folder: Path, off: tuple[str, ...] = ()) -> None:
        home: Any = sys.modules["torch.optim.optimizer"]
        self._hooks = [home._global_optimizer_pre_hooks, home._global_optimizer_post_hooks]
        before = [dict(vars(one)) for one in HOMES]
        self.recorder = install.begin(torch, folder, CollectOptions(signals_off=off))
        self._wrapped = [
            (owner, name, old[name], value)
            for owner, old in zip(HOMES, before, strict=True)
            for name, value in list(vars(owner).items())
            if name in old and old[name] is not value
        ]
        self._ours = [dict(one) for one in self._hooks]

    def turn(self, on: bool) -> None:
        for owner, name, old, new in self._wrapped:
            setattr(owner, name, new if on else old)
        for registered, ours in zip(self._hooks, self._ours, strict=True):
            registered.update(ours) if on else registered.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="mlp", choices=["mlp", "cnn", "loader", "transformer"])
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--steps", type=int, help="of a block; default: 200 of the MLP, 20 of the others")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--always-on", action="store_true")
    parser.add_argument("--loops", nargs="*", help="all, or these")
    arguments = parser.parse_args()
    if arguments.loops is not None:
        compare_loops(arguments.loops or list(loops.LOOPS), arguments.blocks)
        return
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        off = tuple(signal.name for signal in SIGNALS if signal.sampled) if arguments.always_on else ()
        switch = Switch(Path(folder), off)
        train, block = trainer(arguments.workload)
        block = arguments.steps or block
        train(max(10 * block, WARM_UP))
        if arguments.profile:
            profile(train, 10 * block)
        else:
            report(switch, train, block, arguments.blocks)
        switch.recorder.close()


def trainer(workload: str) -> tuple[Callable[[int], None], int]:
    model, optimizer, batches, block = getattr(workloads, workload)()

    def train(steps: int) -> None:
        for _ in range(steps):
            x, y = next(batches)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
            loss.backward()
            optimizer.step()

    return train, block


def report(switch: Switch, train: Callable[[int], None], block: int, blocks: int) -> None:
    clocks = {"training thread": time.thread_time, "whole process": time.process_time, "wall": time.perf_counter}
    taken: dict[tuple[str, bool], list[float]] = {(name, on): [] for name in clocks for on in (False, True)}
    stated = []
    for index in range(blocks):
        for on in (True, False) if index % 2 else (False, True):
            switch.turn(on)
            train(1)  # Python forgets what it knew of classes that change
            begin, overhead = [clock() for clock in clocks.values()], switch.recorder.guard.overhead.seconds
            train(block)
            for name, clock, start in zip(clocks, clocks.values(), begin, strict=True):
                taken[name, on].append((clock() - start) / block)
            if on:
                stated.append((switch.recorder.guard.overhead.seconds - overhead) / block)
    for name in clocks:
        bare = statistics.median(taken[name, False])
        if name == "training thread":
            print(f"a step without hooks takes {bare * 1e3:.2f} ms")
        added = sorted(with_ - without for with_, without in zip(taken[name, True], taken[name, False], strict=True))
        kept = added[blocks // 10 : blocks - blocks // 10]
        mean, error = statistics.fmean(kept), statistics.stdev(kept) / len(kept) ** 0.5
        quick = [statistics.quantiles(taken[name, on], n=10)[0] for on in (True, False)]
        print(
            f"us added, {name:16} {mean * 1e6:6.0f} +- {error * 1e6:3.0f} [{(quick[0] - quick[1]) * 1e6:.0f}]   "
            f"ratio {1 + mean / bare:.4f} +- {error / bare:.4f}"
        )
    print(f"stated by the collector    {statistics.fmean(stated) * 1e6:6.0f} [{statistics.median(stated) * 1e6:.0f}]")
    print(f"calls a step               {calls(switch, train, True) - calls(switch, train, False):6.0f}")
    print(f"bytecodes a step           {bytecodes(switch, train):6.0f}")


def compare_loops(names: list[str], blocks: int) -> None:
    """A row per loop, each measured in a process of its own: a loop leaves much behind."""
    titles = (("backwards", 10), ("skipped", 9), ("us bare", 9), ("us added", 16), ("ratio", 8), ("stated", 8),
              ("bytecodes", 11), ("median", 9))  # fmt: skip
    print(f"{'loop':22}" + "".join(f"{title:>{width}}" for title, width in titles), flush=True)
    for name in names:
        if importlib.util.find_spec(loops.LOOPS[name][2]) is None:
            print(f"{name:22}left out, {loops.LOOPS[name][2]} is not installed")
            continue
        process = multiprocessing.get_context("spawn").Process(target=measure_loop, args=(name, blocks))
        process.start()
        process.join()


def measure_loop(name: str, blocks: int) -> None:
    loop, backwards, _ = loops.LOOPS[name]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        switch = Switch(Path(folder))
        plan = steps_of(name, switch, backwards, blocks)
        left = next(plan)

        def done() -> bool:
            nonlocal left
            left -= 1
            if not left:
                left = next(plan, 0)
            return not left

        loop(done)
        switch.recorder.close()


def steps_of(name: str, switch: Switch, backwards: int, blocks: int) -> Iterator[int]:
    """Yields how many iterations to run next, and measures them; prints the row at the end."""
    recorder, skipped = switch.recorder, SkippedSteps()
    block, warm_up = max(10, 60 // backwards), max(150, WARM_UP // backwards)
    taken: dict[bool, list[float]] = {True: [], False: []}
    stated = 0.0
    yield warm_up
    counted, steps = skipped.count, recorder.progress.steps
    yield 2 * block * 4  # how many of these take the fast path
    share = (skipped.count - counted) / (recorder.progress.steps - steps)
    for index in range(2 * blocks):
        on = index % 4 in (0, 3)
        switch.turn(on)
        yield 2 if on else 1  # Python forgets what it knew of classes that change
        begin, overhead = time.thread_time(), recorder.guard.overhead.seconds
        yield block
        taken[on].append((time.thread_time() - begin) / block / backwards)
        stated += (recorder.guard.overhead.seconds - overhead) / block / backwards if on else 0.0
    switch.turn(True)
    yield 25
    counts = []
    with bytecodes_of_ours() as codes:
        for _ in range(8 * block):
            before = codes[0]
            yield 1
            counts.append((codes[0] - before) / backwards)
    bare = statistics.median(taken[False])
    added = sorted(one - other for one, other in zip(taken[True], taken[False], strict=True))[blocks // 10 :]
    added = added[: len(added) - blocks // 10]
    mean, error = statistics.fmean(added), statistics.stdev(added) / len(added) ** 0.5
    sys.__stdout__.write(
        f"{name:22}{backwards:10}{share:9.0%}{bare * 1e6:9.0f}{mean * 1e6:9.0f} +- {error * 1e6:3.0f}"
        f"{1 + mean / bare:8.2f}{stated / blocks * 1e6:8.0f}{statistics.fmean(counts):11.0f}"
        f"{statistics.median(counts):9.0f}\n"
    )
    sys.__stdout__.flush()


class SkippedSteps:
    """Counts the rows of steps that took the fast path."""

    def __init__(self) -> None:
        self.count = 0
        append = stream.TableStream.append_values

        def counted(self_: Any, values: list[Any]) -> None:
            self.count += 1
            append(self_, values)

        stream.TableStream.append_values = counted  # type: ignore[method-assign]


@contextlib.contextmanager
def bytecodes_of_ours() -> Iterator[list[int]]:
    """Counts the bytecodes that the collector executes on this thread."""
    ours, count = str(Path(install.__file__).parent.parent), [0]

    def counted(frame: Any, event: str, _argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(ours):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count[0] += event == "opcode"
        return counted

    sys.settrace(counted)
    try:
        yield count
    finally:
        sys.settrace(None)


def calls(switch: Switch, train: Callable[[int], None], on: bool, steps: int = 200) -> float:
    """Function calls that a step makes on this thread."""
    switch.turn(on)
    count = 0

    def counted(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    train(steps)
    sys.setprofile(None)
    return count / steps


def bytecodes(switch: Switch, train: Callable[[int], None], steps: int = 200) -> float:
    """Bytecodes that the collector executes in a step on this thread."""
    switch.turn(True)
    with bytecodes_of_ours() as count:
        train(steps)
    return count[0] / steps


def profile(train: Callable[[int], None], steps: int) -> None:
    profiler = cProfile.Profile()
    profiler.runcall(train, steps)
    print(f"{steps} steps")
    pstats.Stats(profiler).sort_stats("tottime").print_stats("tracelyze|built-in|method", 70)


if __name__ == "__main__":
    main()
