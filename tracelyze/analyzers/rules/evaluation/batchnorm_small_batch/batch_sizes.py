"""Batches that are too small for batch normalisation, and the line that sets their size."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed import normalisation_layers as layers
from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import timing
from tracelyze.diagnosis import Finding, Setting

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.rule import Limits, OneOutcome
    from tracelyze.diagnosis import Location


def few_values(optimization: Optimization, limits: Limits) -> tuple[str, float] | None:
    """The layer whose mean and variance come from the fewest values of each channel, if they are too few."""
    layers: dict[str, list[float]] = {}
    for row in optimization.process.tables["activations"].records():
        if "BatchNorm" in (row["kind"] or "") and row["outputs"]:
            layers.setdefault(row["module"] or "", []).append(row["elements"] / row["outputs"])
    usual = {name: float(np.median(values)) for name, values in layers.items() if len(values) >= limits["looks"]}
    name = min(usual, key=lambda one: usual[one], default=None)
    return None if name is None or usual[name] > limits["values"] else (name, usual[name])


def gap(optimization: Optimization, limits: Limits) -> tuple[float, float] | None:
    """Loss of the first validations in eval mode, and of training just before, if the former is far above."""
    evals, steps = optimization.process.evals, optimization.steps
    rows = np.flatnonzero(
        validation.passes(optimization.process)
        & np.isfinite(evals["loss"])
        & (evals["model_in_train"] == 0)
        & (evals["loss_is_whole"] == 1)
    )[: int(limits["first"])]
    trained = steps["loss"][timing.numbers(optimization) <= (evals["after_step"][rows[-1]] if len(rows) else 0)]
    known = trained[np.isfinite(trained)][-int(limits["before"]) :]
    if len(rows) < limits["first"] or len(known) < limits["before"]:
        return None
    here, there = float(np.median(known)), float(np.min(evals["loss"][rows]))
    return (there, here) if 0 < limits["gap"] * here < there else None


def batch_location(optimization: Optimization, samples: float, layer: str = "") -> Location | None:
    """The loader of batches that are forwarded whole: its line sets their size. Else the line that makes the layer, or
    the first batch normalisation, or that of the backward."""
    process = optimization.process
    return (
        loader_of_size(optimization, samples)
        or (process.module_location(layer) if layer else layers.normalisation(process))
        or optimization.backward_location
    )


def loader_of_size(optimization: Optimization, samples: float) -> Location | None:
    """The line that makes the loader, if it makes batches of this size."""
    loader = optimization.loader
    return optimization.process.site(loader["made_at"]) if loader.get("batch_size") == samples else None


def said_of_size(optimization: Optimization, samples: float, beside: Location | None) -> str:
    """The line that sets the size of the batches, in brackets, beside one of the same file."""
    place = loader_of_size(optimization, samples)
    return f" (line {place.line})" if place is not None and beside is not None and place.file == beside.file else ""


def with_size(outcome: OneOutcome, optimization: Optimization) -> OneOutcome:
    """A finding that says which setting the size of the loader's batches is; not one that stands at the layers, which
    are to be others."""
    size = optimization.loader.get("batch_size")
    if not isinstance(outcome, Finding) or not size or outcome.location == layers.normalisation(optimization.process):
        return outcome
    return replace(outcome, setting=Setting(("batch_size",), (size,)))
