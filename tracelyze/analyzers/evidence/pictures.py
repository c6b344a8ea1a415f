"""The pictures that several rules and the overview share: columns of a training over its steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.evidence import guessing, timing
from tracelyze.analyzers.evidence.charts import chart, plain
from tracelyze.diagnosis import Chart, Line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.diagnosis import Mark, Unit

SIZES: Final[Mapping[Unit, float]] = {"": 1.0, "share": 1.0, "ms": 1e-3, "s": 1.0, "MiB": 2.0**20, "GiB": 2.0**30}
"""What a unit of a chart is in the units of the tables: seconds and bytes."""
_RANKS: Final = 64  # bars of one chart
_SETS: Final = 2  # of validation, in one chart
WIDE = 20
"""From this factor on between its smallest and largest value a loss is drawn on a logarithmic axis, and times of steps
from this factor on between their median and the largest."""


def over_steps(
    optimization: Optimization,
    title: str,
    y_label: str,
    columns: Mapping[str, str],
    marks: Sequence[Mark] = (),
    *,
    unit: Unit = "",
    threshold: float | None = None,
    threshold_label: str = "",
    log_y: bool = False,
    scattered: Mapping[str, tuple[Floats, Floats]] | None = None,
) -> list[Chart]:
    """Columns of the step table over the step number, one line each (`columns`: name of the line to column).

    Columns that were not measured are left out; without any there is no chart (an empty list). Seconds and bytes
    are drawn in `unit`.
    """
    steps = optimization.steps
    present = {name: column for name, column in columns.items() if steps.has(column)}
    if not present:
        return []
    lines = {name: steps[column] / SIZES[unit] for name, column in present.items()}
    known = {name: steps.known(column) for name, column in present.items()}
    drawn = chart(
        title,
        "step",
        y_label,
        timing.numbers(optimization),
        lines,
        known=known,
        scattered=scattered,
        marks=marks,
        threshold=threshold,
        threshold_label=threshold_label,
        log_y=log_y,
        unit=unit,
    )
    rank = optimization.process.rank
    return [replace(drawn, about=f"rank {rank}", rank=rank, training=timing.training_of(optimization))]


def loss(optimization: Optimization, marks: Sequence[Mark] = (), name: str = "") -> list[Chart]:
    """Training loss, with the losses of validation passes as points, and the loss of a guess where that is known."""
    steps = optimization.steps
    finite = steps["loss"][np.isfinite(steps["loss"])]
    wide = len(finite) > 0 and float(finite.min()) > 0 and float(finite.max()) > WIDE * float(finite.min())
    drawn = over_steps(
        optimization,
        f"Training loss{name}",
        "loss",
        {"training": "loss"},
        marks,
        scattered=_validation(optimization),
        log_y=bool(wide),
    )
    averaged = optimization.process.facts.get("evaluated_losses") or ""
    drawn = [replace(one, shows="loss", about=", ".join(filter(None, (one.about, averaged)))) for one in drawn]
    guess = guessing.level(optimization)
    if guess is None:
        return drawn
    return [replace(one, threshold=guess[0], threshold_label=guess[1], healthy="below") for one in drawn]


def _validation(optimization: Optimization) -> dict[str, tuple[Floats, Floats]]:
    """Steps done before, and losses, of the validation passes, the sets apart where a log names several.

    Evaluations of training data or of a test set are none, nor is a term of the loss that is measured beside the whole.
    """
    evals = optimization.process.evals
    measured = evals.known("loss") & np.isfinite(evals["loss"]) & np.isfinite(evals["after_step"])
    measured &= ~evals.matches("purpose", "training") & ~evals.matches("purpose", "test")
    if evals.has("trained"):
        measured &= evals["trained"] != 0
    if evals.has("loss_is_whole"):
        measured &= evals["loss_is_whole"] != 0
    sets = list(dict.fromkeys(evals.text("set"))) if evals.has("set") else [None]
    apart = {one: measured & (evals.matches("set", one) if one else True) for one in sets}
    apart = {one: rows for one, rows in apart.items() if rows.any()}
    return {
        f"validation, {one}" if one and len(apart) > 1 else "validation": (
            evals["after_step"][rows],
            evals["loss"][rows],
        )
        for one, rows in list(apart.items())[:_SETS]
    }


def grad_norm(
    optimization: Optimization, marks: Sequence[Mark] = (), name: str = "", limit: tuple[float, str] | None = None
) -> list[Chart]:
    """Gradient norm before clipping, on a logarithmic axis; `limit`: the norm from which on a rule fires, in words."""
    drawn = over_steps(
        optimization, f"Gradient norm{name}", "L2 norm", {"gradient norm": "grad_norm"}, marks, log_y=True
    )
    if limit is None:
        return drawn
    return [replace(one, threshold=limit[0], threshold_label=limit[1], healthy="below") for one in drawn]


def of_ranks(
    title: str, y_label: str, ranks: Sequence[int], parts: Mapping[str, tuple[str, list[float]]], unit: Unit = ""
) -> Chart:
    """A bar for each rank, made of `parts`: by name the kind of time they are, if any, and their values."""
    kept = sorted(range(len(ranks)), key=lambda index: ranks[index])[:_RANKS]
    lines = [Line(name, plain(np.array(values)[kept]), "bars", kind) for name, (kind, values) in parts.items()]
    places = [float(ranks[index]) for index in kept]
    return Chart(title, "rank", y_label, places, lines, shows="ranks", over="ranks", unit=unit)


def loss_scale(optimization: Optimization, marks: Sequence[Mark] = ()) -> list[Chart]:
    """GradScaler's loss scale on a logarithmic axis."""
    return over_steps(optimization, "Loss scale", "scale", {"loss scale": "scale"}, marks, log_y=True)


def memory(optimization: Optimization, marks: Sequence[Mark] = ()) -> list[Chart]:
    """Memory of the device and of the host, in MiB."""
    names = {"device, in tensors": "device_allocated", "device, reserved": "device_reserved", "host": "host_rss"}
    return [replace(one, shows="memory") for one in over_steps(optimization, "Memory", "MiB", names, marks, unit="MiB")]


def time_split(optimization: Optimization, marks: Sequence[Mark] = ()) -> list[Chart]:
    """Wall time of each step, the wait for data in it, device time and the collector's own, in milliseconds.

    On a logarithmic axis where single steps (a start, a validation) would press all the others flat.
    """
    whole = optimization.steps["seconds"][np.isfinite(optimization.steps["seconds"])]
    spikes = len(whole) > 0 and float(whole.max()) > WIDE * float(np.median(whole))
    names = {
        "whole step": "seconds",
        "waiting for data": "loader_wait",
        "device idle for data": "device_wait",
        "device": "device_seconds",
        "tracelyze": "overhead",
    }
    drawn = over_steps(optimization, "Time per step", "milliseconds", names, marks, unit="ms", log_y=bool(spikes))
    return [replace(one, shows="step-time") for one in drawn] if optimization.steps.has("seconds") else drawn
