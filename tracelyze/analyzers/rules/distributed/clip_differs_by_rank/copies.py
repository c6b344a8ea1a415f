"""Tensors of which several ranks hold a copy, in models whose other tensors are split over the ranks.

Layers around the parts of a tensor-parallel model (embeddings, normalisations, biases) are held by every rank, and are
given the same gradient on each. Where a rank scales its copy's gradient by a factor of its own, by a clip that others
do not make, the copies are updated differently and drift apart. No loss shows that: BLOOM-176B was trained for weeks
with normalisations that had parted like this (https://github.com/microsoft/DeepSpeed/pull/1801).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

Norms = dict[int, tuple[float, float]]
"""By a checksum of the tensor's name: norm of the weights before the step, and of the gradient at it."""


class AtStep(NamedTuple):
    """Norms at one step of one rank."""

    step: int
    norms: Norms


MOST_TENSORS = 16  # of a rank, so that what is known of it stays small however large the model is
TINY = 1e-12  # of a norm: a gradient that is zero has no factor


@dataclass(frozen=True)
class Scaled:
    """Copies whose gradients differ by one factor. `factor`: this rank's gradient over that of the lowest rank."""

    step: int
    factor: float
    copies: int
    parts: int
    """Tensors that each of the two ranks holds by itself."""


def norms_of(process: Process) -> AtStep | None:
    """The first step of which tensors were measured, and their norms there; all ranks choose the same tensors."""
    measured = process.tables["parameters"]
    first = min((int(row["step"]) for row in measured.records()), default=None)
    if first is None or len(process.optimizations) != 1:
        return None
    found = {
        zlib.crc32(str(row["parameter"]).encode()): (float(row["weight_norm"]), float(row["grad_norm"]))
        for row in measured.records()
        if int(row["step"]) == first and row["weight_norm"] is not None and row["grad_norm"] is not None
    }
    return AtStep(first, dict(sorted(found.items())[:MOST_TENSORS]))


def scaled(own: AtStep | None, other: AtStep | None, limits: Limits) -> Scaled | None:
    """Whether the gradients of nearly all copies differ by one factor between two ranks that hold parts besides.

    Tensors that are equal by chance, because both begin at zero, have gradients of their own: no factor fits them.
    """
    if own is None or other is None or own.step != other.step:
        return None
    copies, parts = _ratios(own.norms, other.norms, limits["equal"])
    if not parts or len(copies) < limits["copies"]:
        return None
    factor = float(np.median(copies))
    fits = np.abs(np.array(copies) / factor - 1) <= limits["factor"]
    if fits.mean() < limits["fit"] or fits.sum() < limits["copies"] or abs(factor - 1) <= limits["apart"]:
        return None
    return Scaled(own.step, factor, int(fits.sum()), parts)


def _ratios(own: Norms, other: Norms, equal: float) -> tuple[list[float], int]:
    """The other rank's gradient over the own one, of each tensor with equal weights; how many tensors have not."""
    ratios = []
    parts = len(own.keys() ^ other.keys())
    for name in own.keys() & other.keys():
        (weight, gradient), (theirs, their_gradient) = own[name], other[name]
        if abs(weight - theirs) > equal * max(weight, theirs):
            parts += 1
        elif min(gradient, their_gradient) > TINY:
            ratios.append(their_gradient / gradient)
    return ratios, parts
