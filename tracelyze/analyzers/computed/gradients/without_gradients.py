"""Steps on which no trainable tensor had a gradient other than zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.rule import Passed, Skipped

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Mask


@dataclass(frozen=True)
class Stretch:
    """The longest stretch of observed steps without a gradient that is not zero."""

    first: int  # row of the steps
    last: int  # row of the steps, included
    count: int  # observed steps in the stretch
    observed: int  # observed steps of the run
    alive: int  # of these, with a gradient that is not zero
    sampled: bool  # some steps that trained were not observed
    gaps: bool  # some of these lie within the stretch
    missing: bool  # every gradient is None, and not zero
    without_loss: bool  # the loss is exactly 0 at every observed step

    @property
    def whole(self) -> bool:
        """Whether no observed step of the run lies outside."""
        return self.count == self.observed


def longest(optimization: Optimization, trained: Mask) -> Stretch | Passed | Skipped:
    """The longest stretch of the steps that `trained`, shape [steps]; or why there is none to judge."""
    steps = optimization.steps
    none, zero = np.nan_to_num(steps["grads_none"]), np.nan_to_num(steps["grads_zero"])
    dead = none + zero >= steps["parameters"]
    usable = trained & steps.known("grads_none") & (steps["parameters"] > 0)
    observed = usable & (steps.known("grads_zero") | dead)  # whether gradients are zero is looked at now and then
    satisfied = steps["loss"] == 0  # a hinge that is satisfied has no gradient, rightly
    never = bool(satisfied[observed].all())  # there was nothing to be satisfied
    if never and not dead[observed].all():
        return Passed("the loss reads 0 at every step, and gradients that are not zero come of it all the same")
    rows = np.flatnonzero(observed if never else observed & ~satisfied)
    if not len(rows):
        return Skipped("no sampled step had a backward, trainable tensors and a loss other than zero")
    begin, end = statistics.longest_run(dead[rows])
    within = rows[begin:end]
    return Stretch(
        first=int(rows[begin]),
        last=int(rows[end - 1]),
        count=end - begin,
        observed=len(rows),
        alive=int((~dead[rows]).sum()),
        sampled=bool(len(rows) < trained.sum()),
        gaps=bool(end - begin < trained[rows[begin] : rows[end - 1] + 1].sum()),
        missing=bool((none[within] >= steps["parameters"][within]).all()),
        without_loss=never,
    )
