"""What a page shows of a trace: timelines of a typical and of the slowest step, and tables of what took time.

Made only when a page is asked for: it reads the steps that it shows a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from tracelyze.analyzers.kineto.attribution.collectives import Arrivals
from tracelyze.analyzers.kineto.attribution.summary import Attributed, TraceSummary, summarise_file
from tracelyze.analyzers.kineto.page import lanes, listings, ranks
from tracelyze.analyzers.kineto.page.decimation import UNITS
from tracelyze.analyzers.kineto.page.host_detail import HostDetail
from tracelyze.analyzers.kineto.reading.detail import look_again
from tracelyze.analyzers.kineto.reading.device_spans import details
from tracelyze.analyzers.kineto.rule import MICROSECONDS, steady
from tracelyze.analyzers.kineto.timeline.steps import Steps
from tracelyze.analyzers.kineto.timeline.table import Floats
from tracelyze.diagnosis import Lane, Listing, Picture, Timeline
from tracelyze.formatting import duration, number, percent, plural

MOST_EVENTS: Final = 200_000
"""Host events of the steps that are read again, as far as is known beforehand: about a second's work.

A step that holds more is shown in part.
"""

SLOWER: Final = 1.02
"""By how much the slowest step must exceed the typical one to be shown beside it: less is the timer's and the eye's."""


_COUNTED: Final = ("ProfilerStep", "optimizer steps")
"""Sources of steps whose numbers go on from the step at which the profiler began."""


@dataclass(frozen=True)
class Choice:
    """One step to be drawn: where it is, and why it was chosen."""

    path: str
    index: int
    title: str
    note: str


@dataclass
class Painter:
    """Makes the picture of one job. `keep` is shown a trace while it is in memory, which saves reading it again.

    `first_step`: the step of the run that the trace's step 0 was. `problem`: why there is no picture; one that
    cannot be made must not hide the findings.
    """

    first_step: int = 0
    picture: Picture = field(default_factory=Picture)
    problem: str = ""
    _drawn: bool = False

    def keep(self, seen: Attributed, summary: TraceSummary) -> None:
        """Draws the only trace of a job."""
        self._drawn = True
        try:
            self._draw(seen, summary, choose([self.numbered(summary)]))
        except Exception as error:
            self.problem = f"The timeline could not be drawn: {type(error).__name__}: {error}."

    def finish(self, summaries: Sequence[TraceSummary]) -> Picture:
        """The picture; for several traces, those that hold the chosen steps are read once more."""
        if self._drawn:
            return self.picture
        choices = choose([self.numbered(summary) for summary in summaries])
        for path in dict.fromkeys(choice.path for choice in choices):
            own = [choice for choice in choices if choice.path == path]
            try:
                summarise_file(Path(path), 0, partial(self._draw, choices=own))
            except Exception as error:
                self.problem = f"{Path(path).name}: the timeline could not be drawn: {type(error).__name__}: {error}."
        return self.picture

    def late_rank(self, arrivals: Sequence[Arrivals], rank: int) -> None:
        """Puts all ranks around the collective that `rank` holds up most in front of the single steps."""
        timeline = ranks.around_the_late(arrivals, rank)
        if timeline is not None:
            self.picture.timelines.insert(0, timeline)

    def numbered(self, summary: TraceSummary) -> TraceSummary:
        """The summary with the run's numbers for its steps, where the profiler counted them."""
        if not self.first_step or not summary.steps_from.startswith(_COUNTED) or not len(summary.number):
            return summary
        # The profiler has numbers of its own; between the ends of two steps lies the one after the window's first.
        own = summary.number[0] if summary.steps_from.startswith("ProfilerStep") else 0
        return replace(summary, number=summary.number - own + self.first_step)

    def _draw(self, seen: Attributed, summary: TraceSummary, choices: Sequence[Choice]) -> None:
        if not choices or not len(seen.steps):
            return
        stretches = [_stretch(seen, choice.index) for choice in choices]
        first = choices[0]
        wanted = _around(seen, first.index) if not self.picture.listings else (first.index, first.index + 1)
        begin, end = float(seen.steps.start[wanted[0]]), float(seen.steps.end[wanted[1] - 1])
        if wanted[1] - wanted[0] == 1:
            begin, end = stretches[0]
        windows = [(begin, end), *stretches]
        detail = look_again(seen.trace.path, seen.blocks, windows, seen.trace.threads)
        host = HostDetail(detail, seen.steps.thread)
        said = details(seen.trace.path, seen.blocks, stretches)
        for choice, stretch in zip(choices, stretches, strict=True):
            self.picture.timelines.append(_timeline(seen, summary, host, choice, stretch, said))
        if not self.picture.listings:
            work = listings.launched(seen, host, begin, end)
            steps = wanted[1] - wanted[0]
            around = int(self.numbered(summary).number[first.index])
            some = f"{plural(steps, 'step')} around step {around:,}"
            looked_at = some if steps < len(seen.steps) else "all of them" if steps > 1 else "it"
            tables: list[Listing | None] = [
                listings.kernels(seen, host, work, looked_at if seen.steps.counted else "a part of it"),
                listings.operators(seen, host, work, begin, end, steps),
            ]
            self.picture.listings.extend(table for table in tables if table is not None)


def choose(summaries: Sequence[TraceSummary]) -> list[Choice]:
    """The step that is closest to the middle in duration and in what it is made of, and the slowest one."""
    candidates: list[tuple[TraceSummary, int]] = []
    rows: list[Floats] = []
    for summary in summaries:
        parts = _parts(summary)
        for index in np.flatnonzero(steady(summary)).tolist():
            candidates.append((summary, index))
            rows.append(parts[index])
    if not candidates:
        return []
    composition = np.stack(rows)
    durations = np.array([float(summary.duration[index]) for summary, index in candidates])
    middle = float(np.median(durations))
    distance = np.abs(composition - np.median(composition, axis=0)).sum(axis=1) + np.abs(durations - middle)
    typical, slowest = int(distance.argmin()), int(durations.argmax())
    several = len({summary.rank for summary in summaries}) > 1
    summary, index = candidates[typical]
    if not summary.counted:
        return [Choice(summary.path, index, "The trace", "No steps were found in it.")]
    left_out = sum(len(summary.number) for summary in summaries) - len(candidates)
    of = f"Of {plural(len(candidates), 'step')}{' (without the first, which warms up)' if left_out else ''}"
    if len(candidates) == 1:
        return [Choice(summary.path, index, f"The only step: {_name(summary, index, several)}", "")]
    why = f"{of} the one closest to the middle, in its duration and in what it is made of."
    chosen = [Choice(summary.path, index, f"A typical step: {_name(summary, index, several)}", why)]
    factor = durations[slowest] / max(middle, 1e-9)
    if slowest != typical and factor >= SLOWER:
        summary, index = candidates[slowest]
        why = f"{of} the longest: {number(round(factor, 2))} times the middle one, {duration(middle / MICROSECONDS)}."
        chosen.append(Choice(summary.path, index, f"The slowest step: {_name(summary, index, several)}", why))
    return chosen


def _name(summary: TraceSummary, index: int, several: bool) -> str:
    rank = f" of rank {summary.rank}" if several else ""
    return f"step {int(summary.number[index]):,}{rank}, {duration(float(summary.duration[index]) / MICROSECONDS)}"


def _parts(summary: TraceSummary) -> Floats:
    """What each step is made of, in microseconds, shape [steps, parts]; the same parts for every trace."""
    device = summary.device
    if device is not None:
        worked = [device.compute, device.exposed_communication, device.exposed_copy]
        return np.concatenate([np.stack(worked, axis=1), device.causes], axis=1)
    causes = summary.host if summary.host is not None else np.zeros((len(summary.duration), 1))
    return np.concatenate([np.zeros((len(causes), 3)), causes], axis=1)


def _stretch(seen: Attributed, index: int) -> tuple[float, float]:
    """The step from begin to end, or its middle part where it holds too much to be drawn."""
    begin, end = float(seen.steps.start[index]), float(seen.steps.end[index])
    share = MOST_EVENTS / max(_events(seen, end - begin), 1.0)
    if share >= 1:
        return begin, end
    middle, half = (begin + end) / 2, (end - begin) * share / 2
    return middle - half, middle + half


def _around(seen: Attributed, index: int) -> tuple[int, int]:
    """Steps from first to before last around one of them, as many as may be read again."""
    steps = seen.steps
    first, last = index, index + 1
    while True:
        before = first > 0 and _events(seen, float(steps.end[last - 1] - steps.start[first - 1])) <= MOST_EVENTS
        first -= before
        behind = last < len(steps) and _events(seen, float(steps.end[last] - steps.start[first])) <= MOST_EVENTS
        last += behind
        if not before and not behind:
            return first, last


def _events(seen: Attributed, length: float) -> float:
    """About how many host events a stretch of time holds."""
    steps = seen.steps
    held = seen.blocks.host_events or seen.trace.events
    return held * length / max(float(steps.end[-1] - steps.start[0]), 1e-9)


def _timeline(
    seen: Attributed,
    summary: TraceSummary,
    host: HostDetail,
    choice: Choice,
    stretch: tuple[float, float],
    said: dict[tuple[float, str], str],
) -> Timeline:
    begin, end = stretch
    names = lanes.Names()
    drawn: list[Lane | None] = []
    left_out: list[str] = []
    device = summary.device
    if device is not None:
        rows = seen.rows[device.process]
        step = _only(seen.steps, choice.index)
        start, stop = seen.trace.device["start"][rows], seen.trace.device["end"][rows]
        near = np.flatnonzero((stop > begin) & (start < end))
        near = near if isinstance(rows, slice) else rows[near]
        streams, more = lanes.device_lanes(seen, near, begin, end, names, said)
        drawn += streams
        left_out += [plural(more, "stream")] if more else []
        drawn.append(lanes.idle_lane(seen, step, rows, begin, end, names))
    threads, more = lanes.host_lanes(host, begin, end, names)
    drawn += [lanes.loader_lane(seen, begin, end, names), *threads]
    left_out += [plural(more, "thread")] if more else []
    others = len(summary.devices) - 1
    left_out += [plural(others, "device")] if others > 0 else []
    unit = (end - begin) / UNITS
    notes = [choice.note] if choice.note else []
    whole = float(seen.steps.end[choice.index] - seen.steps.start[choice.index])
    if end - begin < 0.999 * whole:
        notes.append(f"Shown is its middle part, {percent((end - begin) / max(whole, 1e-9))} of it.")
    if not host.detail.complete:
        notes.append("It holds more than could be read again: some host activity is missing.")
    if left_out:
        notes.append(f"Not drawn: {', '.join(left_out)}.")
    found = [lane for lane in drawn if lane is not None]
    length, unit_us = round(end - begin, 1), round(unit, 3)
    said_of = list(names.details)
    return Timeline(
        *(choice.title, " ".join(notes), length, unit_us, list(names.numbers), found, said_of),
        source=str(seen.trace.path),
        begin_us=round(begin, 1),
    )


def _only(steps: Steps, index: int) -> Steps:
    one = slice(index, index + 1)
    return replace(steps, number=steps.number[one], start=steps.start[one], end=steps.end[one])
