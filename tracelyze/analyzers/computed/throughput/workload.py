"""Whether steps have more to do late in a training than early: longer sequences, more calls, more tensors trained."""

from __future__ import annotations

import itertools
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats

FORWARDS: Final = "forwards per step"
"""Calls of the model. Older recordings know them where no loader hands out the batches."""

EVALUATED: Final = "forwards per step without a backward"
"""Calls in evaluation passes, and those of a model that acts between its steps."""

SAMPLES: Final = 4
"""Samples on either side of a step of which the median is taken."""


def growth(optimization: Optimization) -> dict[str, float]:
    """Of each measure of a step's work, what it is in the last third of the steps over what it was in the first.

    Empty where too little is known: neither what came out of the modules nor the shapes of batches.
    """
    count = len(optimization.steps)
    bounds = (count / 3, 2 * count / 3)
    process = optimization.process
    content = {"the elements that modules put out": _outputs(process), "the elements of a batch": _batches(process)}
    found = {name: ratio for name, series in content.items() if (ratio := _ratio(series, bounds)) is not None}
    if not found:
        return {}
    steps = optimization.steps
    made = steps["model_calls"]
    calls = {float(at): float(count) for at, count in enumerate(made, 1) if np.isfinite(count)} or _forwards(process)
    trained = steps["parameters"] - steps["grads_none"]
    columns = {name: steps[name] for name in ("batch_size", "backwards", "loader_batches")} | {"trained": trained}
    names = {
        "batch_size": "samples per step",
        "backwards": "backwards per step",
        "loader_batches": "batches per step",
        "trained": "tensors with a gradient",
    }
    for name, values in columns.items():
        series = {float(at): float(value) for at, value in enumerate(values) if np.isfinite(value)}
        if (ratio := _ratio(series, bounds, mean=True)) is not None:
            found[names[name]] = ratio
    for label, series in (
        ("elements of the weights", _weights(process)),
        ("module calls of a forward", _calls(process)),
        (FORWARDS, calls),
        (EVALUATED, _evaluated(process, bounds)),
    ):
        if (ratio := _ratio(series, bounds)) is not None:
            found[label] = ratio
    return found


def grew_at(process: Process, step: int, factor: float) -> bool:
    """Whether modules put out `factor` times as many elements from this step on as before: longer sequences, say.

    The median of the last four samples before it and that of the first four from it on are compared, since the lengths
    of single batches vary; False where neither side was sampled.
    """
    series = sorted(_outputs(process).items())
    before = [elements for at, elements in series if at < step][-SAMPLES:]
    after = [elements for at, elements in series if at >= step][:SAMPLES]
    return bool(before and after and np.median(after) >= factor * np.median(before))


def _ratio(series: Mapping[float, float], bounds: tuple[float, float], mean: bool = False) -> float | None:
    """Late over early of a series by step; None where one of the two is unknown or nothing."""
    middle = np.mean if mean else np.median
    early = [value for step, value in series.items() if step <= bounds[0]]
    late = [value for step, value in series.items() if step >= bounds[1]]
    if not early or not late or middle(early) <= 0:
        return None
    return float(middle(late) / middle(early))


def _outputs(process: Process) -> dict[float, float]:
    return _summed(process.tables["activations"]["step"], process.tables["activations"]["elements"])


def _weights(process: Process) -> dict[float, float]:
    return _summed(process.tables["parameters"]["step"], process.tables["parameters"]["elements"])


def _calls(process: Process) -> dict[float, float]:
    table = process.tables["activations"]
    found: dict[float, float] = {}
    for step, order in zip(table["step"], table["order"], strict=True):
        found[float(step)] = max(found.get(float(step), 0.0), float(order))
    return found


def _batches(process: Process) -> dict[float, float]:
    table = process.tables["batches"]
    sizes = [_elements(shape) for shape in table.text("shape")]
    kept = ~(table["trained"] == 0)
    return _summed(table["step"][kept], np.array(sizes, dtype=np.float64)[kept], table["batch"][kept])


def _elements(shape: str | None) -> float:
    sizes = str(shape or "").split("x")
    return float(prod(int(size) for size in sizes)) if all(size.isdigit() for size in sizes) else float("nan")


def _summed(step: Floats, values: Floats, batch: Floats | None = None) -> dict[float, float]:
    """Sums of the values by step, of one measurement (one batch) each."""
    found: dict[float, float] = {}
    first: dict[float, float] = {}
    for index, (at, value) in enumerate(zip(step, values, strict=True)):
        if np.isfinite(value) and (batch is None or first.setdefault(float(at), float(batch[index])) == batch[index]):
            found[float(at)] = found.get(float(at), 0.0) + float(value)
    return found


def _forwards(process: Process) -> dict[float, float]:
    """Calls of the model per step between measurements, where no loader hands out batches: episodes that get longer."""
    table = process.tables["batches"]
    rows = ~np.isfinite(table["loader"])
    places = sorted(set(zip(table["step"][rows].tolist(), table["batch"][rows].tolist(), strict=True)))
    last: dict[float, float] = {}
    for step, place in places:
        last.setdefault(step, place)
    at = list(last)
    return {b: (last[b] - last[a]) / (b - a) for a, b in itertools.pairwise(at) if b > a}


def _evaluated(process: Process, bounds: tuple[float, float]) -> dict[float, float]:
    after, forwards = process.evals["after_step"], np.nan_to_num(process.evals["forwards"])
    if not len(after):
        return {}
    early, late = forwards[after <= bounds[0]].sum(), forwards[after >= bounds[1]].sum()
    if late > early:  # evaluations at even intervals: one more may fall into one third of the steps than into another
        most = max(forwards[after == step].sum() for step in np.unique(after))
        late = max(early, late - most)
    return {bounds[0]: float(early), bounds[1]: float(late)}
