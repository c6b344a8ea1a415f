"""What ReLUs put out (table activations), and the gradients of the layers that feed them (table parameters)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.table import Table

KINDS = ("ReLU", "ReLU6")
FUNCTION = "ReLU after "  # how the collector names one that is no module


class Dead(NamedTuple):
    """A ReLU, the layer before it, and the measurements since which both are silent; whether the layer had no gradient
    in the first step."""

    module: str
    fed_by: str
    step: int
    measurements: int
    untrained: bool


def gradients_of(parameters: Table) -> dict[str, list[tuple[int, float]]]:
    """Measurements of each layer's weight: the step and the norm of the gradient."""
    found: dict[str, list[tuple[int, float]]] = {}
    rates = np.nan_to_num(parameters["lr"], nan=1.0)
    rows = zip(parameters.text("parameter"), parameters["step"], parameters["grad_norm"], rates, strict=True)
    for name, step, norm, rate in rows:
        if name and name.endswith(".weight") and rate > 0:
            found.setdefault(name.removesuffix(".weight"), []).append((int(step), float(norm)))
    return found


def zeros_of(activations: Table, layers: set[str]) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """Measurements of each ReLU (step, share of zeros), by its name and that of the last layer called before it."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    names, kinds = activations.text("module"), activations.text("kind")
    at, zeros, order = activations["step"], activations["zeros"], activations["order"]
    layer = ""
    step = -1.0
    for row in np.lexsort((order, activations["time"], at)):
        if at[row] != step:
            step, layer = at[row], ""
        name = str(names[row])
        if name in layers:
            layer = name
        elif kinds[row] in KINDS and layer and np.isfinite(zeros[row]):
            found.setdefault((name, layer), []).append((int(at[row]) + 1, float(zeros[row])))
    return found


def weights_are_zero(parameters: Table, layer: str) -> bool:
    """Whether the weight of a layer was zero, all of it, at each measurement."""
    names = np.asarray(parameters.text("parameter"), dtype=object)
    norms = parameters["weight_norm"][names == f"{layer}.weight"]
    return len(norms) > 0 and not norms.any()
