"""Weights and gradients of a rank at a few steps, as sums that show whether two ranks have the same ones."""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.ranks import last_phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process

Norms = dict[str, tuple[float, float]]
Sums = dict[float, tuple[int, float]]
MOST_STEPS = 14  # of a rank that are compared, beside the first two
TINY = 1e-12


def sums_of(process: Process) -> dict[int, Sums]:
    """For some steps: of the tensors with each rate, how many there are, and a weighted sum of their norms' logarithms.

    The steps are chosen by a checksum of their number, so that all ranks choose the same.
    """
    return _chosen(_norms_by_step(process))


def sums_of_gradients(process: Process) -> dict[int, Sums]:
    """For some steps: how many gradients the optimizer found, and a weighted sum of their norms' logarithms.

    The learning rates of their tensors do not matter.
    """
    by_step = _norms_by_step(process, "grad_norm")
    return _chosen({step: {name: (norm, 0.0) for name, (norm, _) in of.items()} for step, of in by_step.items()})


def _chosen(by_step: dict[int, Norms]) -> dict[int, Sums]:
    chosen = sorted(sorted(by_step, key=lambda step: zlib.crc32(b"%d" % step))[:MOST_STEPS])
    kept = sorted({*sorted(by_step)[:2], *chosen})
    return {step: _sums(by_step[step]) for step in kept}


def _sums(norms: Norms) -> Sums:
    found: dict[float, tuple[int, float]] = {}
    for name, (norm, rate) in norms.items():
        weight = 0.5 + zlib.crc32(name.encode()) / 2**32  # tensors that change places must not cancel out
        count, total = found.get(rate, (0, 0.0))
        found[rate] = count + 1, total + weight * math.log(max(norm, TINY))
    return found


def same_tensors_other_rates(one: Sums, other: Sums) -> bool:
    """Whether as many tensors were measured on both ranks, and not all of them have a rate that both know."""
    counts = (sum(count for count, _ in sums.values()) for sums in (one, other))
    return len(set(counts)) == 1 and one.keys() != other.keys()


def apart(one: Sums, other: Sums) -> float:
    """The largest distance of the sums over the same number of tensors: about that of a tensor's norm in parts of it.

    Divided by the root of their number, by which the sum of rounding errors grows.
    0 where no rate is the same.
    """
    common = [rate for rate in one if rate in other and one[rate][0] == other[rate][0]]
    return max((abs(one[rate][1] - other[rate][1]) / math.sqrt(one[rate][0]) for rate in common), default=0.0)


def _norms_by_step(process: Process, column: str = "weight_norm") -> dict[int, Norms]:
    """Norm before the step, of the weights or the gradient, and rate of each tensor, by step."""
    found: dict[int, Norms] = defaultdict(dict)
    for row in last_phase.parameters(process):
        if row[column] is not None and np.isfinite(row[column]):
            found[int(row["step"])][str(row["parameter"])] = float(row[column]), float(row["lr"] or 0.0)
    return found


def same_gradients(process: Process, others: Sequence[Process], equal: float) -> bool:
    """Whether the optimizers of these ranks were given the same gradients at all common measurements."""
    own, common = sums_of_gradients(process), 0
    for other in others:
        theirs = sums_of_gradients(other)
        steps = own.keys() & theirs.keys()
        if any(apart(own[step], theirs[step]) > equal for step in steps):
            return False
        common += bool(steps)
    return common == len(others) > 0


def largest_distance(process: Process, others: Sequence[Process]) -> float:
    """The largest distance of two norms of a tensor at the last common measurement, in parts of the norm."""
    own, most = _norms_by_step(process), 0.0
    for other in others:
        theirs = _norms_by_step(other)
        other.forget()
        last = max(own.keys() & theirs.keys(), default=0)
        one, two = own.get(last, {}), theirs.get(last, {})
        common = (name for name in one if name in two)
        most = max([most, *(abs(one[name][0] - two[name][0]) / max(one[name][0], TINY) for name in common)])
    return most
