"""The line of the dataset in which the program loads: where it was seen while it waited for data."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.computed.throughput import loading_advice, open_files
from tracelyze.analyzers.computed.throughput.waiting import of_a_sample
from tracelyze.analyzers.script.script_lines import MODULE
from tracelyze.diagnosis import Location
from tracelyze.formatting import duration, percent

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.throughput.waiting import Prediction, Waiting
    from tracelyze.analyzers.recorded.run import Process

_CHEAPER: Final = (
    "Make samples cheaper: read, parse or resize once and store {result}. Even with workers {left} of a step would be "
    "waiting."
)
_MOST: Final = 0.5  # of the time: what the program does for more than half of it, and waits for more than half of it
_FEWEST: Final = 4  # looks, one a second: fewer say little


class Place(NamedTuple):
    """`change`: the line to change. `slow`: another one, whose time this change hides. `told`: what makes a sample
    slow. `first`: what to do before workers, where these leave most of the wait; `change` is the slow line then. None
    and empty where that is not known."""

    change: Location | None
    slow: Location | None = None
    told: str = ""
    first: str = ""
    loader: Location | None = None
    """The line that makes the loader, beside a `change` elsewhere."""

    def fix(self, workers: str) -> str:
        """What to do, `workers` included."""
        beside = self.loader is not None and self.change is not None and self.loader.file == self.change.file
        where = f"at line {self.loader.line} " if self.loader is not None and beside else ""
        return f"{self.first} Besides, {where}{workers[0].lower()}{workers[1:]}" if self.first else workers

    def example(self, code: str) -> str:
        """The example of the loader, with its line where that is not the one to change."""
        apart = self.loader is not None and self.change is not None and self.loader.file_line != self.change.file_line
        return (
            f"# line {self.loader.line}\n{code}" if self.first and code and apart and self.loader is not None else code
        )


def place(process: Process, waiting: Waiting, predicted: Prediction, way: str, most: float) -> Place:
    """It is the slow line of the dataset where the predicted saving leaves `most` of the step waiting all the same, and
    where nothing but a cheaper sample helps; else that of the loader."""
    timed = of_a_batch(process, waiting)
    line = timed or seen(process, waiting)
    slow = line or process.site(waiting.loader.get("read_by"))
    change = process.site(waiting.loader.get(loading_advice.PLACES[way]))
    if open_files.held(waiting.loader) and way != loading_advice.RESTART:
        change = process.site(waiting.loader.get("opened_at")) or change
    if slow is None or waiting.per_sample is None or way == loading_advice.RESTART:
        return Place(change)
    told = (
        _of_workers(waiting, slow, timed is not None) if waiting.workers else _of_a_sample(waiting, line, slow, timed)
    )
    left = (waiting.idle - predicted.saved) / max(waiting.step - predicted.saved, 1e-9)
    if line is None or open_files.reads_all(waiting.loader):
        return Place(change, told=told)
    if way == loading_advice.CHEAPER:
        return Place(line if timed is not None or left >= most else change, told=told)
    if left < most:
        return Place(change or line, line, told)
    reader = process.site(waiting.loader.get("read_by"))
    apart = reader is not None and reader.function not in (line.function, MODULE)
    result = f"what {reader.function} (line {reader.line}) makes" if reader is not None and apart else "the result"
    return Place(line, told=told, first=_CHEAPER.format(left=percent(left), result=result), loader=change)


def _of_a_sample(waiting: Waiting, line: Location | None, slow: Location, timed: Location | None) -> str:
    """How long a sample takes the process itself, and where."""
    # Python lets others look where a call lets go of its lock, which need not be the line that takes longest.
    words = "most of it in {}, above all at line" if timed is not None else "mostly in {}, seen most often at line"
    words = words.format(slow.function) if slow.function.isidentifier() else "most of it at line"
    how = words if line is not None else "made by line"
    return f" A sample takes {duration(waiting.per_sample)}, {how} {slow.line}: {slow.source.rstrip(':')}."


def _of_workers(waiting: Waiting, slow: Location, timed: bool) -> str:
    """What a sample takes a worker of its processor, where that is known: how long it took it is not known, since a
    worker may have waited, for a disk, for others or for room in the queue of its batches."""
    used = of_a_sample(waiting)
    takes = f" A sample takes a worker {duration(used)} of its processor." if used > 0 else ""
    where = (
        f"Most of the time of a batch goes into {f'{slow.function}, above all ' * slow.function.isidentifier()}line"
        if timed
        else "Samples are made by line"
    )
    return f"{takes} {where} {slow.line}: {slow.source.rstrip(':')}."


def of_a_batch(process: Process, waiting: Waiting) -> Location | None:
    """The script's line in which a batch of this loader is made, where one function takes most of the time of one."""
    rows = process.events_of("loading")
    for row in reversed(rows):  # the last answer about a loader is of most batches
        there, _, whole = str(row["text"]).partition(" of ")
        known = row["value"] == waiting.loader.get("loader") and row["file"] and row["line"] and whole.isdigit()
        if known and int(there) > _MOST * int(whole):
            return Location(str(row["file"]), int(row["line"]), str(row["name"]), str(row["source"] or ""))
    return None


def seen(process: Process, waiting: Waiting) -> Location | None:
    """The script's line in which the process itself makes its samples, None where workers do or no line stands out.

    A function that fills more than half of the time of a program that waits for data more than half of its time runs
    during the wait. Its commonest line is told; the loop's own lines only wait.
    """
    if waiting.workers or waiting.share <= _MOST:
        return None
    samples = process.samples
    places = samples["site"][np.isfinite(samples["site"])].astype(int).tolist()
    known = {site: process.site(site) for site in set(places)}
    loop = process.site(waiting.loader.get("site"))
    lines = [(line.file, line.function, site) for site in places if (line := known[site]) is not None]
    functions = Counter((file, function) for file, function, _ in lines)
    if len(lines) < _FEWEST:
        return None
    (file, function), count = functions.most_common(1)[0]
    if count < _MOST * len(lines) or (loop is not None and (file, function) == loop.file_function):
        return None
    site, _ = Counter(site for *place, site in lines if place == [file, function]).most_common(1)[0]
    return known[site]
