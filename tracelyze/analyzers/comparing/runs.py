"""What two recorded runs measured, side by side: time per step, wait for data, memory, the loss where both have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from tracelyze.analyzers.comparing.noise import RECORDINGS, blocks, margin, significance, time_change
from tracelyze.analyzers.comparing.settings import lead
from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.recorded import recording_cost
from tracelyze.analyzers.recorded.run import Optimization, Process, Run
from tracelyze.analyzers.recorded.table import Floats
from tracelyze.comparison import Change, Key, Section, Side
from tracelyze.formatting import percent, plural

MEBI: Final = 2.0**20
WARM_UP: Final = 3
WARM_UP_SHARE: Final = 0.02
"""Steps, and share of the steps, at the beginning that are no measure of the others: compilation, caches, workers."""
LAST: Final = 0.1
"""Share of the steps that the level of the loss is taken from: the last ones that both runs made."""
LEAST_MEMORY: Final = 0.05
"""Memory differs by a few percent between recordings of one program: what the allocator keeps depends on timing."""
BUSIER: Final = 0.25
"""Share of all processors: that much of a machine is what a loader with its workers takes, or another program."""
FULL: Final = 0.9  # see OWN
OWN: Final = 0.6
"""Shares of the processors: of the machine's that are busy, and of its own that a program takes at least if it is the
one that keeps them busy."""
FEWEST_SAMPLES: Final = 5  # of the machine, one a second: what lasts for less is a program that starts or ends
_LEAST_LOSS: Final = 0.01
_MICROSECONDS: Final = 1e6


def longest(run: Run) -> list[Optimization]:
    """The training with most steps of each process of the last attempt."""
    attempt = max((process.attempt for process in run.processes), default=0)
    chosen = [process for process in run.processes if process.attempt == attempt and process.optimizations]
    return [process.longest for process in chosen]


def side(run: Run) -> Side:
    """One run as the comparison names it."""
    optimizations = longest(run)
    step = _per_step(optimizations, _net_seconds)
    facts = {}
    if optimizations:
        device = optimizations[0].process.facts.get("device")
        name = device.get("name") if isinstance(device, dict) else None
        facts = {
            "device": str(name or optimizations[0].process.device),
            "torch": str(optimizations[0].process.facts.get("torch")),
        }
    steps = max((len(one.steps) for one in optimizations), default=0)
    ranks = len({process.rank for process in run.processes})
    return Side(str(run.path), "run", steps, ranks, round(1e3 * float(step.mean()), 4) if len(step) else None, facts)


def sections(a: Run, b: Run) -> list[Section]:
    """The tables of what both runs recorded."""
    one, two = longest(a), longest(b)
    step = _per_step(one, _net_seconds)
    whole = _MICROSECONDS * float(step.mean()) if len(step) else 0.0
    times = [_time(name, one, two, values, whole) for name, values in TIMES.items()]
    times = [replace(time, key=_KEYS.get(time.name, "")) if time else None for time in times]
    memory = [_memory(name, one, two, column) for name, column in MEMORY.items()]
    about = "Means per step without the first ones and without evaluations; memory is the largest that was seen."
    found = [Section("recorded", "What was recorded", about, _known([*times, *_rates(one, two), *memory]))]
    loss = _loss(one, two)
    return [*found, Section("loss", "The loss", _about_loss(one, two), loss)] if loss else found


LOSS_ABOUT: Final = "Training loss over the last tenth of the steps, and the last validation loss."


def _lengths(one: list[Optimization], two: list[Optimization]) -> tuple[int, int]:
    before, after = (len(side[0].steps) if side else 0 for side in (one, two))
    return before, after


def _about_loss(one: list[Optimization], two: list[Optimization]) -> str:
    """What is compared, where one run is longer than the other."""
    before, after = _lengths(one, two)
    if before == after:
        return LOSS_ABOUT
    common = f"{min(before, after):,}"
    return (
        f"A made {plural(before, 'step')}, B {after:,}. Their losses are compared over the first {common} of both, by "
        "the last tenth of these; then each run stands at its own end."
    )


def _known(changes: list[Change | None]) -> list[Change]:
    return [change for change in changes if change is not None]


def _settled(values: Floats, optimization: Optimization) -> Floats:
    """What recording took in the steps by which `diagnose` tells its cost."""
    return np.asarray(np.nan_to_num(values)[recording_cost.settled_steps(optimization.steps["seconds"])])


def _steady(values: Floats) -> Floats:
    skipped = max(WARM_UP, int(WARM_UP_SHARE * len(values)))
    later = values[skipped:] if len(values) > 2 * skipped else values
    return later[np.isfinite(later)]


def _net_seconds(optimization: Optimization) -> Floats:
    """Wall time of each step without the evaluation passes that lie in it."""
    steps = optimization.steps
    seconds = steps["seconds"]
    return np.maximum(seconds - validation.seconds_within_steps(optimization.process, steps["time"], seconds), 0.0)


def _column(name: str) -> Callable[[Optimization], Floats]:
    return lambda optimization: optimization.steps[name]


RECORDING: Final = "recording by tracelyze"
TIMES: Final[dict[str, Callable[[Optimization], Floats]]] = {
    "step": _net_seconds,
    "waiting for the data loader": _column("loader_wait"),
    "device idle for data": _column("device_wait"),
    "device time": _column("device_seconds"),
    RECORDING: _column("overhead"),
}
_KEYS: Final[dict[str, Key]] = {
    "step": "step",
    "waiting for the data loader": "loader-wait",
    RECORDING: "recording",
}
MEMORY: Final = {
    "host memory": "host_rss",
    "device memory in tensors, peak": "device_peak",
    "device memory held": "device_reserved",
}


def _per_step(optimizations: list[Optimization], values: Callable[[Optimization], Floats], name: str = "") -> Floats:
    """Seconds of the steady steps, as means over neighbours and over the ranks, shape [blocks]."""
    if name == RECORDING:
        ranks = [_settled(values(optimization), optimization) for optimization in optimizations]
    else:
        ranks = [blocks(_steady(values(optimization))) for optimization in optimizations]
    ranks = [one for one in ranks if len(one)]
    if not ranks:
        return np.zeros(0)
    return np.asarray(np.mean(ranks, axis=0)) if len({len(one) for one in ranks}) == 1 else np.concatenate(ranks)


def _time(
    name: str, one: list[Optimization], two: list[Optimization], values: Callable[[Optimization], Floats], whole: float
) -> Change | None:
    before, after = (_MICROSECONDS * _per_step(side, values, name) for side in (one, two))
    if not len(before) and not len(after):
        return None
    if not len(before) or not len(after):
        known = before if len(before) else after
        mean = round(float(known.mean()) / 1e3, 4)
        return Change(name, mean if len(before) else None, mean if len(after) else None, "ms")
    return time_change(name, before, after, whole, least=RECORDINGS.default)


def _rates(one: list[Optimization], two: list[Optimization]) -> list[Change | None]:
    sizes = [
        [float(np.nanmean(t.steps["batch_size"])) for t in side if t.steps.has("batch_size")] for side in (one, two)
    ]
    if not sizes[0] or not sizes[1]:
        return []
    before, after = (float(np.sum(side)) for side in sizes)
    return [
        Change("samples per step", round(before, 2), round(after, 2), "", 0.0, significance(after - before, 0.0, 0.0))
    ]


def _memory(name: str, one: list[Optimization], two: list[Optimization], column: str) -> Change | None:
    peaks = [[float(np.nanmax(t.steps[column])) / MEBI for t in side if t.steps.has(column)] for side in (one, two)]
    if not peaks[0] or not peaks[1]:
        return None
    before, after = (max(side) for side in peaks)
    smallest = LEAST_MEMORY * max(before, 1.0)
    meaning = significance(after - before, smallest, smallest)
    return Change(name, round(before, 1), round(after, 1), "MiB", round(smallest, 1), meaning, key="memory")


def _loss(one: list[Optimization], two: list[Optimization]) -> list[Change]:
    losses = [side[0].steps["loss"] for side in (one, two) if side and side[0].steps.has("loss")]
    if len(losses) < 2:
        return []
    count = min(map(len, losses))
    first = count - max(1, int(LAST * count))
    ends = [values[first:count][np.isfinite(values[first:count])] for values in losses]
    if not all(map(len, ends)):
        said = "; ".join(
            f"{letter} has no finite loss there" for letter, end in zip("AB", ends, strict=True) if not len(end)
        )
        low, high = (float(np.median(end)) if len(end) else None for end in ends)
        return [Change("training loss", low, high, "", detail=said)]
    before, after = (float(np.median(end)) for end in ends)
    noise = margin(*(blocks(end) for end in ends))
    meaning = significance(after - before, noise, _LEAST_LOSS * abs(before))
    rows = [
        Change(
            "training loss",
            _digits(before),
            _digits(after),
            "",
            noise,
            meaning,
            None,
            f"steps {first + 1} to {count}",
            "loss",
        )
    ]
    validated = [_validation(side[0].process, count) for side in (one, two)]
    if validated[0] is not None and validated[1] is not None:
        rows.append(Change("validation loss", _digits(validated[0]), _digits(validated[1]), ""))
    return rows if len(losses[0]) == len(losses[1]) else rows + _at_their_ends(one[0], two[0])


def _at_their_ends(one: Optimization, two: Optimization) -> list[Change]:
    """The losses of each run at its own end: of runs of two lengths no difference that noise could be held against."""
    trained, validated = [], []
    for side in (one, two):
        losses = side.steps["loss"][-max(1, int(LAST * len(side.steps))) :]
        finite = losses[np.isfinite(losses)]
        trained.append(_digits(float(np.median(finite))) if len(finite) else None)
        last = _validation(side.process, len(side.process.steps))
        validated.append(None if last is None else _digits(last))
    rows = [Change("training loss at its end", trained[0], trained[1], "", detail="each over its own last tenth")]
    both = validated[0] is not None and validated[1] is not None
    return rows + ([Change("validation loss at its end", validated[0], validated[1], "")] if both else [])


def _validation(process: Process, count: int) -> float | None:
    """The last validation loss within the steps that both runs made."""
    after, losses, _ = validation.curve(process)
    inside = np.flatnonzero((after <= count) & np.isfinite(losses))
    return float(losses[inside[-1]]) if len(inside) else None


def _digits(value: float) -> float:
    return float(f"{value:.5g}")


def notes(a: Run, b: Run) -> list[str]:
    """What limits the comparison: notes of the runs, and how busy their machines were."""
    said = [f"{run.path}: {note}" for run in (a, b) for note in dict.fromkeys(run.notes)]
    one, two = longest(a), longest(b)
    if len(set(_lengths(one, two))) > 1 and _loss(one, two):
        said.insert(0, _about_loss(one, two))
    before, after = _busy(a), _busy(b)
    if before is not None and after is not None and abs(after - before) >= BUSIER:
        said.append(
            f"The machine's processors were busy to {percent(before)} during A and to {percent(after)} during B: if "
            "that was other programs, times differ for that alone."
        )
    elif _crowded(a) or _crowded(b):
        said.append("Other programs kept the machine's processors busy: times differ for that alone.")
    return said


def _crowded(run: Run) -> bool:
    """Whether the machine had no processor to spare, and it was not the lead process with its children that took it."""
    process, busy = lead(run), _busy(run)
    cpus = process.facts.get("cpus") if process is not None else None
    if process is None or busy is None or busy < FULL or not isinstance(cpus, int):
        return False
    samples = process.samples
    used = [samples[name][np.isfinite(samples[name])] for name in ("cpu_seconds", "children_cpu_seconds")]
    own = sum(float(np.ptp(values)) for values in used if len(values))
    return own < OWN * cpus * float(np.ptp(samples["time"]))


def _busy(run: Run) -> float | None:
    """Share of the processors of the lead process's machine that were busy, None if too little was recorded."""
    process = lead(run)
    if process is None or np.isfinite(process.samples["machine_cpu"]).sum() < FEWEST_SAMPLES:
        return None
    return float(np.nanmean(process.samples["machine_cpu"]))
