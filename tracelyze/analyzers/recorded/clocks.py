"""How far the clocks of a run's hosts are apart, from the steps that their ranks end together.

Each process relates its own monotonic clock to its host's wall clock once a second (samples.wall). Processes of one
host share that clock. Between hosts nothing is exchanged, since that would add communication to the training: ranks
that average gradients finish every step together, so the median difference of when a step ended on two of them is the
difference of their clocks, up to what each still does after the last collective of the step. Ranks that do not wait
for each other drift apart within a few steps, and get no offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats

MIN_STEPS = 20  # matched steps: a median and its spread from fewer are accidents
MOST_STEPS = 64  # that are kept of a rank: what they say of its clock is said after some dozens
TOGETHER = 0.25  # share of a step: ranks that end their steps within this of each other waited for each other
WORTH_A_NOTE = 0.1  # seconds: below, lines of two hosts' logs can still be put in order
_BEYOND = 5  # spreads of the measurements: what is within is the delay of the network


@dataclass(frozen=True)
class Offset:
    """`seconds` that the clock of `rank` is ahead of the reference rank's; `spread` is how much the steps disagree."""

    rank: int
    host: str
    reference: str
    seconds: float
    spread: float


@dataclass(frozen=True)
class Ends:
    """When steps of a rank ended, in wall time: of every `stride`-th step from the first, shape [steps / stride].

    The stride is a power of two, so that of two ranks one has the steps of the other. `step`: median seconds of a step.
    """

    rank: int
    host: str
    stride: int
    times: Floats
    step: float


def ends_of(process: Process) -> Ends | None:
    """When the steps of the training with the most steps ended; None where that is not known."""
    zero = (process.facts.get("clock") or {}).get("zero")
    optimization = process.longest if process.optimizations else None
    if optimization is None or zero is None:
        return None
    times = optimization.steps["time"]
    stride = 1
    while len(times) > MOST_STEPS * stride:
        stride *= 2
    gaps = np.diff(times)
    gaps = gaps[np.isfinite(gaps)]  # of a damaged table not a single time may be known
    step = float(np.median(gaps)) if len(gaps) else float("nan")
    host = str(process.facts.get("host") or "")
    return Ends(process.rank, host, stride, times[::stride] + float(zero), step)


def offsets(ranks: Iterable[Ends]) -> list[Offset]:
    """One for each rank on another host than the lowest rank, where the steps show it. Empty for runs on one host."""
    by_rank: dict[int, Ends] = {}
    for ends in ranks:
        by_rank.setdefault(ends.rank, ends)
    if len({ends.host for ends in by_rank.values()}) < 2:
        return []
    first = by_rank[min(by_rank)]
    found = (_offset(first, ends) for ends in by_rank.values() if ends.host != first.host)
    return sorted((offset for offset in found if offset is not None), key=lambda offset: offset.rank)


def drift(process: Process) -> float | None:
    """Seconds by which the wall clock has moved against the process's own since the first sample; None if unknown.

    A jump means that the clock was set while the program ran.
    """
    wall, own = process.samples["wall"], process.samples["time"]
    known = np.isfinite(wall) & np.isfinite(own)
    if known.sum() < 2:
        return None
    apart = (wall - own)[known]
    return float(apart[-1] - apart[0])


def notes(ranks: Iterable[Ends]) -> list[str]:
    """Sentences about hosts whose clocks are so far apart that their logs cannot be compared by time."""
    sentences: dict[str, str] = {}
    for offset in offsets(ranks):
        if abs(offset.seconds) > max(WORTH_A_NOTE, _BEYOND * offset.spread):
            way = "ahead of" if offset.seconds > 0 else "behind"
            apart = f"{abs(offset.seconds):.1f} s {way} that of {offset.reference}"
            sentences.setdefault(offset.host, f"the clock of {offset.host} is {apart}")
    return list(sentences.values())


def _offset(first: Ends, other: Ends) -> Offset | None:
    stride = max(first.stride, other.stride)
    mine, theirs = first.times[:: stride // first.stride], other.times[:: stride // other.stride]
    count = min(len(mine), len(theirs))
    apart = theirs[:count] - mine[:count]
    apart = apart[np.isfinite(apart)]
    if len(apart) < MIN_STEPS:
        return None
    middle = float(np.median(apart))
    spread = 1.4826 * float(np.median(np.abs(apart - middle)))
    if not spread <= TOGETHER * first.step:
        return None
    return Offset(other.rank, other.host, first.host, middle, spread)
