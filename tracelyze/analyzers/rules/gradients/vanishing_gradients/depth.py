"""Gradients layer by layer (table parameters): how they thin out from the last layer of a model to its first."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.table import Floats, Table

SMALLEST = 1e-45  # below what float32 holds: what underflowed to zero counts as this


@dataclass(frozen=True)
class Profile:
    """One measurement of the layers of one optimizer, in the order in which it holds them; arrays of shape [layers]."""

    step: int
    layers: list[str]
    gradient: Floats  # root mean square over the elements of a layer
    moved: Floats  # update of the step against the weights

    @property
    def third(self) -> int:
        """How many layers are called early, and how many late."""
        return len(self.layers) // 3

    @property
    def ratio(self) -> float:
        """The gradient of the early layers against that of the late ones; 1 where the late ones have none."""
        late = float(np.median(self.gradient[-self.third :]))
        return float(np.median(self.gradient[: self.third])) / late if late > 0 else 1.0

    @property
    def ends(self) -> float:
        """The gradient of the first layer against that of the last one; 1 where the last one has none."""
        return float(self.gradient[0] / self.gradient[-1]) if self.gradient[-1] > 0 else 1.0

    @property
    def in_order(self) -> float:
        """Share of the pairs of layers of which the earlier has the smaller gradient."""
        first, second = np.triu_indices(len(self.gradient), 1)
        return float(np.mean(self.gradient[first] < self.gradient[second]))

    @property
    def steepest(self) -> float:
        """Share of the whole decay (in orders of magnitude) that lies between two neighbours."""
        size = np.log10(np.maximum(self.gradient, SMALLEST))
        whole = float(size.max() - size.min())
        return float(np.diff(size).max()) / whole if whole > 0 else 1.0


def profiles(parameters: Table, optimizer: int, least: int) -> list[Profile]:
    """Measurements of at least so many layers. A layer is a module with the tensors of its own. Tensors at a rate of
    zero (frozen), and measurements with gradients that are not finite or not those of the step, are left out."""
    chosen = np.flatnonzero((parameters["optimizer"] == optimizer) & (np.nan_to_num(parameters["lr"], nan=1.0) > 0))
    names, steps = parameters.text("parameter"), parameters["step"]
    usable = (parameters["grad_finite"] == 1) & (parameters["closure"] == 0) & (parameters["elements"] > 0)
    by_step: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index in chosen:
        by_step[int(steps[index])][str(names[index]).rpartition(".")[0] or str(names[index])].append(int(index))
    found = []
    for step, layers in sorted(by_step.items()):
        rows = list(layers.values())
        if len(rows) >= least and usable[np.concatenate(rows)].all():
            found.append(_profile(parameters, step, list(layers), rows))
    return found


def _profile(parameters: Table, step: int, layers: list[str], rows: list[list[int]]) -> Profile:
    def squares(column: str) -> Floats:
        return np.array([float(np.nansum(parameters[column][at] ** 2)) for at in rows])

    elements = np.array([float(parameters["elements"][at].sum()) for at in rows])
    weights = squares("weight_norm")
    moved = np.sqrt(np.divide(squares("update_norm"), weights, out=np.zeros_like(weights), where=weights > 0))
    return Profile(step, layers, np.sqrt(squares("grad_norm") / elements), moved)
