"""A loss that left its minimum for good, seen in evaluations: of both splits, or of validation by powers of ten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Limits, Passed, Skipped
from tracelyze.analyzers.signatures import evaluated_losses
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.diagnosis import Chart


def finding(process: Process, rule: str, limits: Limits) -> Finding | Passed | Skipped:
    """Evaluated losses that end above their minimum, on the data that is trained on as on the data that is not."""
    curves = evaluated_losses.evaluated(process)
    if curves is not None:
        if len(curves.after) < statistics.FEWEST_TO_DEPART:
            return Skipped(
                f"{len(curves.after)} evaluations: {statistics.FEWEST_TO_DEPART} are needed to tell a rise that stays"
            )
        seen = evaluated_losses.departure(curves, factor=limits["evaluated"], sigmas=limits["sigmas"])
        if seen is None:
            return Passed("the evaluated losses did not both rise for good above their minimum")
        begin = int(curves.after[seen.lowest])
        charts = evaluated_losses.picture(curves, [Mark(float(begin), "lowest loss")])
        what = "The losses of the evaluated training data and of the validation set"
        return _finding(process, rule, begin, seen, what, limits.source("evaluated"), limits["evaluated"], charts)
    after, losses = _validation(process)
    if len(losses) < statistics.FEWEST_TO_DEPART:
        return Skipped(
            f"{plural(len(losses), 'evaluated loss')}: {statistics.FEWEST_TO_DEPART} are needed to tell a rise that "
            "stays"
        )
    alone = statistics.departure(losses, factor=limits["alone"], sigmas=limits["sigmas"])
    if alone is None:
        return Passed("the validation loss did not rise by orders of magnitude")
    what = "The validation loss"
    return _finding(process, rule, int(after[alone.lowest]), alone, what, limits.source("alone"), limits["alone"], [])


def _validation(process: Process) -> tuple[Floats, Floats]:
    after, losses, _samples = validation.curve(process)
    usable = np.isfinite(losses) & (losses > 0)
    return after[usable], losses[usable]


def _finding(
    process: Process,
    rule: str,
    begin: int,
    seen: statistics.Departure,
    what: str,
    source: str,
    factor: float,
    charts: list[Chart],
) -> Finding:
    optimization = process.longest if process.optimizations else None
    affected = timing.numbers(optimization) > begin if optimization else None
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=f"The evaluated loss diverged: it ended at {number(seen.end / seen.minimum)} times its minimum",
        summary=(
            f"{what} were lowest at step {begin:,} and ended far above: {number(seen.minimum)} became "
            f"{number(seen.end)}. Overfitting would have left the loss of the training data low; this undid what had "
            "been learned."
            if charts
            else f"{what} was {number(seen.minimum)} at step {begin:,} and ended at {number(seen.end)}. No overfitting "
            "does that: the weights left what they had learned."
        ),
        fix="Go back to a checkpoint from before the rise, and lower the learning rate, warm it up, or clip gradients.",
        fix_code="torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)",
        first_step=begin,
        last_step=timing.last_step(optimization) if optimization else None,
        evidence=[
            Evidence("loss at the end", seen.end, "", factor * seen.minimum, source),
            Evidence("lowest evaluated loss", seen.minimum),
        ],
        cost=timing.cost_of(optimization, affected) if optimization is not None and affected is not None else None,
        charts=charts,
        false_alarm="A curriculum, a change of the loss's weights or of the data during the run.",
    )
