"""The last batch of an epoch, which holds fewer samples than the others, where the script counts on full batches: a
hidden state, a mask or targets that were made once for the size of a batch."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.script.datasets import batch_of_one
from tracelyze.analyzers.script.editing import loader_arguments
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

_NUMBER: Final = re.compile(r"(?<![\d.])\d+(?![\d.]*\d)")
_VIEW: Final = re.compile(r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)")
_OF_BATCHES: Final = re.compile(
    r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)"
    r"|The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension 0"
    r"|Expected hidden(?:\[\d\])? size \(\d+, (\d+), \d+\), got [\[(]\d+, (\d+), "
)


@dataclass(frozen=True)
class ShortBatch:
    """`place`: what makes the loader, where an edit of it leaves such a batch out (`diff`)."""

    samples: int
    loader: Mapping[str, Any]
    place: Location | None
    diff: Diff | None
    code: str

    @property
    def said(self) -> str:
        """Which batch it was, and what the exception says of it."""
        return (
            f"The batch was the last of {self.loader['length']:,}: it has {plural(self.samples, 'sample')} in place of "
            f"{self.loader['batch_size']:,}, and something at the named line, or before it, counts on a full batch."
        )

    @property
    def fix(self) -> str:
        """What to do about it: whoever evaluates needs every sample."""
        own = "ake sizes from the batch itself, such as len(inputs), where something is made for a batch."
        return f"Have the loader leave that batch out, or t{own}" if self.code else f"T{own}"


def found(process: Process, message: str, event: Mapping[str, Any]) -> ShortBatch | None:
    """The last batch of its epoch, at which sizes in the message relate as its samples do to those of a full one."""
    in_hand = _in_hand(process, event)
    if in_hand is None:
        return None
    loader, samples = in_hand
    full = loader["batch_size"]
    if samples is None:
        samples = _told(message, full)
    if samples is None or not _is_about(message, samples, full):
        return None
    trains = process.optimizations and process.longest.loader.get("loader") == loader["loader"]
    place = process.site(loader.get("made_at")) if trains else None
    dropped = {"drop_last": "True"}
    diff = loader_arguments.with_arguments(process, place, dropped)
    code = loader_arguments.example(process, loader, dropped) if place is not None else ""
    return ShortBatch(samples, loader, place if diff is not None else None, diff, code)


def _in_hand(process: Process, event: Mapping[str, Any]) -> tuple[Mapping[str, Any], int | None] | None:
    """The loader of the batch that was used when the exception came, where it was the last and others are full, and how
    many samples it had; None for these where no statistics of it were taken."""
    loaders = {row["loader"]: row for row in process.loaders.records() if _may_be_short(row)}
    rows = [row for row in process.tables["batches"].records() if row["step"] == event["step"] and not row["trained"]]
    newest = max(rows, key=lambda row: float(row["time"]), default=None)
    loader = loaders.get(newest["loader"]) if newest is not None else None
    if newest is not None and loader is not None and newest["batch"] == loader["length"] - 1:
        samples = next(iter(loss_calls.sizes(newest["shape"])), 0)
        return (loader, samples) if 0 < samples < loader["batch_size"] else None
    loader = loaders.get(process.longest.loader.get("loader")) if process.optimizations else None
    return (loader, None) if newest is None and loader is not None and batch_of_one.was_last(process) else None


def _may_be_short(loader: Mapping[str, Any]) -> bool:
    """Whether the last batch may hold fewer samples than one before it. The only batch of a loader has none before."""
    return (loader["length"] or 0) > 1 and (loader["batch_size"] or 0) > 1 and not loader["drop_last"]


def _is_about(message: str, samples: int, full: int) -> bool:
    """Whether two sizes in the message relate as the samples of the two batches, or a view asks for a full one."""
    view = _VIEW.search(message)
    if view is not None:
        asked, size = [int(one) for one in _NUMBER.findall(view[1])], int(view[2])
        there = size % samples == 0 if "-1" in view[1] else size * full == math.prod(asked) * samples
        return there and full in asked
    sizes = {int(one) for one in _NUMBER.findall(message)} - {0}
    return any(few * full % samples == 0 and few * full // samples in sizes for few in sizes)


def _told(message: str, full: int) -> int | None:
    """The smaller one of two sizes of a batch in the message, of which the other is that of a full one."""
    match = _OF_BATCHES.search(message)
    sizes = sorted(int(one) for one in match.groups() if one) if match is not None else []
    return sizes[0] if sizes and sizes[1] == full and 0 < sizes[0] < full else None
