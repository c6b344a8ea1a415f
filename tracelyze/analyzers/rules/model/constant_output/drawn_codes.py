"""A VAE whose reconstructions follow the code that it draws, which says nothing of the sample: in training, and in a
validation that draws as well. They differ from sample to sample then, and are no better than one answer to everything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls, predictions
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rules.model.constant_output import alike_in_validation, summed_divergence
from tracelyze.diagnosis import Evidence
from tracelyze.formatting import number, percent

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Row
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Finding

_SQUARED: Final = "mse_loss"
_VERIFY: Final = "Record the run again: the error of the reconstructions falls below that of the mean of the targets."


def finding(process: Process, optimization: Optimization, rule: str, limits: Limits) -> Finding | None:
    """Where the error stays at that of the best constant, late in the run, and the script adds the sum of a KL
    divergence to a mean over the elements of each sample."""
    lines = loss_calls.lines(process, (_SQUARED,))
    for line in (one for one in lines if one.training):
        rows = [row for one in lines if one.site == line.site for row in one.rows if _is_judged(row, limits)]
        rows = sorted(rows, key=lambda row: row["step"])
        late = [row for row in rows if row["step"] >= limits["late"] * len(optimization.steps)]
        if len(rows) < limits["looks"] or len({row["step"] for row in late}) < limits["validations"]:
            continue
        explained = [1 - row["value"] / alike_in_validation.variance(row) for row in late]
        if max(explained) > limits["explained"] or not _stays(optimization, limits):
            continue
        if float(np.median(explained)) < -limits["explained"]:
            continue  # it has yet to come down to that of the best constant
        divergence = summed_divergence.of(process, line.location, line.rows) if line.location is not None else None
        if divergence is None:
            continue
        error = float(np.median([row["value"] for row in late]))
        best = float(np.median([alike_in_validation.variance(row) for row in late]))
        where = timing.placed(process, [row["step"] for row in late])
        fault = LossFault(
            title="The latent code says nothing of the input: one answer to everything is as good",
            summary=f"From step {where.step:,} on the squared error is {number(error)}. The mean of the "
            f"targets, as one answer to everything, comes to about {number(best)}. The reconstructions differ from "
            f"sample to sample by {percent(alike_in_validation.ratio(late))} of what these do, by what the model draws."
            + divergence.why,
            remedy=divergence,
            evidence=[
                Evidence(
                    "of what targets differ, explained by the reconstructions",
                    max(0.0, float(np.median(explained))),
                    "share",
                    *limits.against("explained"),
                    role="most",
                )
            ],
            false_alarm="Targets that the input says nothing about, such as random labels.",
            severity="warning",
            confidence="likely",
            counted="of them, and of a validation, late enough to be judged",
        )
        return replace(loss_calls.finding(process, line, late, limits, rule, fault), verify=_VERIFY)
    return None


def _is_judged(row: Row, limits: Limits) -> bool:
    known = row["value"] is not None and row["reduction"] == "mean"
    return known and predictions.can_judge(row, limits)


def _stays(optimization: Optimization, limits: Limits) -> bool:
    """Whether the whole loss no longer falls."""
    before, after = predictions.levels(optimization)
    return abs(after - before) <= (1 - limits["falls"]) * abs(before)
