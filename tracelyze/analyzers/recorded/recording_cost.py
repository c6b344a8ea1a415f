"""What recording the run cost, signal by signal, what the budget turned down, and what failed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracelyze.diagnosis import SignalFacts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats, Mask

FIRST_STEPS = 100  # of a process: signals sample all of them, whatever that costs
NO_SIGNALS = ("hooks", "writer")  # rows of the table signals that state totals


class Cost(NamedTuple):
    """Seconds that the hooks took. `settled` of them fell into the `steps` after the start, which took `seconds`."""

    settled: float
    seconds: float
    steps: int
    at_start: float  # before those steps: what is loaded and prepared, and the first steps


def of_steps(process: Process) -> Cost | None:
    """What recording cost by the collector's own clock; None where that was not measured.

    The first steps are apart: they pay for what is done once, and all of them are sampled. Of a run that is too short
    for that only the first step is, whose own time is not known.
    """
    steps = process.steps
    if not steps.has("overhead"):
        return None
    overhead, seconds = np.nan_to_num(steps["overhead"]), steps["seconds"]
    later = settled_steps(seconds)
    settled = float(overhead[later].sum())
    return Cost(settled, float(seconds[later].sum()), int(later.sum()), float(overhead.sum()) - settled)


def settled_steps(seconds: Floats) -> Mask:
    """Those of steps that took `seconds` by which `diagnose` and `compare` tell the cost of recording."""
    first = FIRST_STEPS if len(seconds) >= 2 * FIRST_STEPS else 1
    return np.isfinite(seconds) & (np.arange(len(seconds)) >= first)


def signals_of(process: Process) -> list[SignalFacts]:
    """One entry per signal of this process, the most expensive first."""
    found = []
    for name, entry in process.signals.items():
        if name not in NO_SIGNALS:
            found.append(
                SignalFacts(
                    name=name,
                    state=str(entry.get("state") or "on"),
                    reason=str(entry.get("reason") or entry.get("why") or ""),
                    seconds=_rounded(entry.get("seconds")),
                    share=_rounded(entry.get("share")),
                    every=entry.get("every"),
                    turned_down_at=entry.get("turned_down_at"),
                    traceback=str(entry.get("traceback") or ""),
                )
            )
    return sorted(found, key=lambda signal: -(signal.seconds or 0.0))


def _rounded(value: float | None) -> float | None:
    """To ten binary digits. More are no use, and would be a thirtieth of what a rank sends: noise is not compressed."""
    if value is None or not math.isfinite(value):
        return value
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * 1024) / 1024, exponent)


def joined(known: Iterable[SignalFacts], more: Iterable[SignalFacts]) -> list[SignalFacts]:
    """The signals of several processes: of each the worst that became of it, and the highest share."""
    found = {signal.name: signal for signal in known}
    for signal in more:
        before = found.setdefault(signal.name, signal)
        costlier, other = sorted((signal, before), key=lambda one: -(one.share or 0.0))
        worse = next((one for one in (costlier, other) if one.state == "failed"), costlier)
        found[signal.name] = replace(worse, seconds=costlier.seconds, share=costlier.share)
    return sorted(found.values(), key=lambda signal: -(signal.seconds or 0.0))


def notes(signals: Iterable[SignalFacts]) -> list[str]:
    """What a reader must know before reading: parts of the record that are missing through our own fault."""
    return [
        f"the signal {signal.name} failed and was switched off; what needs it could not be checked ({signal.reason})"
        for signal in signals
        if signal.state == "failed"
    ]
