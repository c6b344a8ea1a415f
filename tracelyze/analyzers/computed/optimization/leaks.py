"""Evidence for a memory leak: memory that climbs, and autograd graphs that something keeps alive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.diagnosis import Chart, Evidence, Mark, Severity
from tracelyze.formatting import duration, size

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.analyzers.rule import Limits

MIB = 2.0**20
FEWEST = statistics.MIN_CLIMB_STEPS
"""The fewest measurements of memory, or of graphs, that show a climb."""
HOST_GROWTH = 0.2  # share of the memory at the start: heaps that are used again and page caches stay below it
_FIRST_PASS = 1.2  # passes over the data: what is fetched ahead of the second one is a part of it


@dataclass(frozen=True)
class Series:
    """Memory by step, shape [steps where it was measured]. `limit` in bytes, `rows` are rows of the step table, as far
    apart everywhere."""

    name: str
    device: bool
    values: Floats
    rows: Any
    limit: float | None
    seconds_per_step: float


@dataclass(frozen=True)
class MemoryClimb:
    """A material climb: bytes per step, bytes so far, the slope's 95% interval, and time until memory ends."""

    slope: float
    growth: float
    interval: tuple[float, float]
    steadiness: float
    first: int
    seconds_left: float | None
    seconds_so_far: float

    @property
    def time_left(self) -> str:
        """A sentence about how long the memory lasts, after a space; empty where that is not known."""
        left = self.seconds_left
        return "" if left is None else f" At this pace memory is exhausted after {duration(left)} more."

    def severity(self, horizon: float) -> Severity:
        """Critical if memory would end within `horizon` times what the run took so far."""
        left = self.seconds_left
        return "critical" if left is not None and left < horizon * self.seconds_so_far else "warning"


@dataclass(frozen=True)
class Graphs:
    """Autograd graphs of earlier steps that stay alive; `pattern` says how, `first` is a row of the step table."""

    kept: float
    per_step: float
    pattern: str
    first: int


def series(optimization: Optimization, host: bool = False) -> Series | None:
    """Memory of the device where it is known and not only the `host` is asked for; None if it was not recorded."""
    steps = optimization.steps
    device = not host and steps.has("device_allocated") and float(np.nanmax(steps["device_allocated"])) > 0
    column = "device_allocated" if device else "host_rss"
    known = np.isfinite(steps[column])
    if not known.any():
        return None
    pace = steps["seconds"][np.isfinite(steps["seconds"])]
    rows, last = _evenly(np.flatnonzero(known))
    return Series(
        "device" if device else "host",
        bool(device),
        steps[column][known][last],
        rows,
        _limit(optimization, bool(device)),
        statistics.median(pace) if len(pace) else float("nan"),
    )


def _evenly(rows: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """As many rows as these, evenly spaced, and for each of them the place of the last measured row before it.

    The host's memory is read every few milliseconds, so that there are more readings where steps are slow. A leak that
    is even from step to step is uneven from reading to reading then.
    """
    even = np.linspace(rows[0], rows[-1], len(rows)).astype(np.intp)
    return even, np.searchsorted(rows, even, side="right") - 1


def _limit(optimization: Optimization, device: bool) -> float | None:
    """Bytes at which memory ends: the device's size, or what the host process has plus what is left on the machine."""
    process = optimization.process
    if device:
        facts = process.facts.get("device")
        size = facts.get("memory_bytes") if isinstance(facts, dict) else None
        return float(size) if size else None
    left = process.samples["host_available"]
    resident = optimization.steps["host_rss"]
    left, resident = left[np.isfinite(left)], resident[np.isfinite(resident)]
    return float(left[-1] + resident[-1]) if len(left) and len(resident) else None


def climb(memory: Series, relative: float, absolute: float) -> MemoryClimb | None:
    """The straight climb of the floor of `memory` if it is material: at least `absolute` bytes and `relative` of it."""
    shape = statistics.straight_climb(memory.values)
    if shape is None:
        return None
    growth = shape.slope * (len(memory.values) - shape.start)
    span = float(memory.rows[-1] - memory.rows[0]) / max(1, len(memory.rows) - 1)  # steps between measurements
    slope = shape.slope / max(1.0, span)
    left: float | None = None
    if memory.limit is not None and np.isfinite(memory.seconds_per_step):
        left = max(0.0, memory.limit - shape.floor_end) / slope * memory.seconds_per_step
    so_far = memory.seconds_per_step * float(memory.rows[-1] - memory.rows[0] + 1)
    if growth < max(absolute, relative * shape.floor_start) and not (left is not None and left < so_far):
        return None
    low, high = statistics.slope_interval(memory.values)
    return MemoryClimb(
        slope,
        growth,
        (low / max(1.0, span), high / max(1.0, span)),
        shape.steadiness,
        int(memory.rows[shape.start]),
        left,
        so_far,
    )


def is_large(memory: Series, climb: MemoryClimb) -> bool:
    """Device memory is counted exactly; the host's also moves with what its allocator keeps, so it takes more."""
    return memory.device or climb.growth > HOST_GROWTH * float(memory.values[0])


def kept_graphs(optimization: Optimization, least: float, sawtooth: float) -> Graphs | None:
    """Graphs that pile up over the whole run, or within each epoch; None if they do not, or were not recorded."""
    steps = optimization.steps
    rows = rows_with_graphs(optimization)
    if len(rows) < FEWEST:
        return None
    alive = _beyond_the_step(steps["live_graphs"][rows], steps["model_calls"][rows])
    shape = statistics.straight_climb(alive)
    if shape is not None and shape.floor_end - shape.floor_start >= least:
        first = int(rows[_leaves_floor(alive)])
        return Graphs(float(alive.max()), shape.slope, "until the end of the run", first)
    teeth = statistics.sawtooth(alive, least=sawtooth)  # of graphs that outlive an epoch a part may fall at its end
    if teeth is not None and teeth[1] >= sawtooth:
        rising = np.diff(alive)
        pace = statistics.median(rising[rising > 0])
        times = "once" if teeth[0] == 1 else f"{teeth[0]} times"
        most = float(alive.max()) if teeth[0] == 1 else teeth[1]
        return Graphs(most, pace, f"until a point that comes {times} (each epoch, or each log)", int(rows[0]))
    return None


def until_let_go(optimization: Optimization, graphs: Graphs, absolute: float) -> str:
    """A sentence about memory, after a space, where it does not climb over the whole run: how far it grew until graphs
    were let go of first, which leaves it to be used again."""
    steps, rows = optimization.steps, rows_with_graphs(optimization)
    rows = rows[rows >= graphs.first]
    memory = series(optimization)
    falls = np.flatnonzero(np.diff(steps["live_graphs"][rows]) < -graphs.kept / 2)
    if memory is not None and len(falls):
        until = int(rows[falls[0]])
        within = memory.values[(memory.rows >= graphs.first) & (memory.rows <= until)]
        if len(within) and within[-1] - within[0] >= absolute:
            first, last = timing.step_at(optimization, graphs.first), timing.step_at(optimization, until)
            name = memory.name.capitalize()
            return f" {name} memory grew by {size(within[-1] - within[0])} from step {first:,} to step {last:,}."
    return " The memory involved is small so far; it grows with the model's activations."


def rows_with_graphs(optimization: Optimization) -> npt.NDArray[np.intp]:
    """Rows of the step table whose number of graphs speaks of the loop.

    The last row is closed as the program ends: what the function that trains held in its variables is gone by then.
    """
    alive = optimization.steps["live_graphs"]
    rows = np.flatnonzero(np.isfinite(alive))
    return rows[:-1] if len(rows) > 1 and alive[rows[-1]] < alive[rows[-2]] else rows


def of_files(process: Process) -> float:
    """The part of the growth of host memory that is the page cache's; 0 where it is not known."""
    samples = process.samples
    known = np.isfinite(samples["host_files"]) & np.isfinite(samples["host_rss"])
    resident, files = samples["host_rss"][known], samples["host_files"][known]
    if len(resident) < 2:
        return 0.0
    begin = len(resident) // 10
    return float((files[-1] - files[begin]) / max(resident[-1] - resident[begin], 1.0))


def _beyond_the_step(alive: Floats, calls: Floats) -> Floats:
    """Graphs alive without those that a step has because it calls models more often than the shortest step does.

    Its own last loss keeps as many graphs as it made calls, and that of the step before as many again. The first step
    is not the shortest one: it lacks the calls that a loop makes behind the optimizer's step.
    """
    usual = calls[1:]
    fewest = float(np.nanmin(usual)) if np.isfinite(usual).any() else 0.0
    more: Floats = np.maximum(np.nan_to_num(calls - fewest), 0.0)
    return np.maximum(alive - 2 * more, 0.0)


def _leaves_floor(alive: Floats) -> int:
    """Index of the value from which on they rise to what no healthy loop holds, beyond its last loss or two, and never
    come back."""
    first = statistics.onset(alive, float(alive[0]) + 2)
    if first is None:
        return 0
    level = np.flatnonzero(np.diff(alive[: first + 1]) <= 0)
    return int(level[-1]) + 1 if len(level) else 0


def first_epoch(optimization: Optimization) -> bool:
    """Whether the training never got beyond the first pass over its data: a cache in the dataset may still fill."""
    return passes(optimization) <= _FIRST_PASS


def passes(optimization: Optimization) -> float:
    """How many passes over its data the training made; infinite where that is not known."""
    loader = optimization.steps["loader"]
    loader = loader[np.isfinite(loader)]
    if not len(loader):
        return float("inf")
    lengths = [row["length"] for row in optimization.process.loaders.records() if row["loader"] == loader[0]]
    fetched = float(np.nansum(optimization.steps["loader_batches"]))
    return fetched / lengths[0] if lengths and lengths[0] else float("inf")


def charts(optimization: Optimization, begin: int, graphs: bool) -> list[Chart]:
    """Memory over the steps, and the number of graphs alive if that is the evidence."""
    marks = [Mark(float(begin), "growth begins")]
    alive = pictures.over_steps(
        optimization, "Autograd graphs of earlier steps still alive", "graphs", {"alive": "live_graphs"}, marks
    )
    return (alive if graphs else []) + pictures.memory(optimization, marks)


def evidence(series: Series, climb: MemoryClimb, since: int, limits: Limits) -> list[Evidence]:
    """The numbers that speak for a climb. `since`: the number of the step that `climb.growth` counts from."""
    low, high = climb.interval
    found = [
        Evidence(f"growth of {series.name} memory", climb.slope / MIB, "MiB/step"),
        Evidence("95% interval of the growth", f"{size(low, 4)} to {size(high, 4)}", "per step"),
        Evidence(f"growth from step {since:,} on", climb.growth / MIB, "MiB", *limits.against("absolute")),
        Evidence(
            "steadiness (mean increment over its error)",
            float(np.minimum(climb.steadiness, 1e6)),
            "",
            8,
            "61,584 simulated healthy look-alikes: one exceeded it with the other conditions met",
            role="basis",
        ),
    ]
    if climb.seconds_left is not None:
        found.append(Evidence("time to exhaustion", climb.seconds_left, "s"))
    return found
