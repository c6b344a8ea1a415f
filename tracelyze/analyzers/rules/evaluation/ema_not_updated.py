"""ema-not-updated: the copy of the model that is validated never changes, while the model is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """Losses of an untrained copy of the trained model, pass by pass; the model itself is not validated."""
    evals = process.evals
    measured = validation.passes(process) & np.isfinite(evals["loss"])
    copies = measured & (evals["trained"] == 0)
    if not copies.any():
        return Skipped("no copy of the trained model is validated", "not-applicable")
    if (measured & (evals["trained"] == 1)).any():
        return Passed("the trained model is validated as well: a copy beside it may be a baseline")
    models = np.unique(evals["model"][copies])
    rows = np.flatnonzero(copies)
    if len(models) > 1 or len(rows) < limits["passes"]:
        return Skipped(f"{plural(len(rows), 'validation')} of {len(models)} copies: too few of one to compare")
    losses, after = evals["loss"][rows], evals["after_step"][rows]
    if len(np.unique(evals["samples"][rows])) > 1:
        return Skipped("the copy is validated on sets of different sizes, whose losses cannot be compared")
    if float(np.ptp(losses)) > limits["equal"] * abs(float(losses[0])):
        return Passed(f"the copy that is validated changes: its loss goes from {number(losses[0])} to "
                      f"{number(losses[-1])}")  # fmt: skip
    if after[-1] - after[0] < limits["steps"]:
        return Skipped(f"only {after[-1] - after[0]:.0f} steps lie between the validations of the copy")
    return [_finding(process, rows, limits)]


def _finding(process: Process, rows: np.ndarray, limits: Limits) -> Finding:
    evals, optimization = process.evals, process.longest
    loss, last = float(evals["loss"][rows[0]]), int(evals["after_step"][rows[-1]])
    first = int(evals["after_step"][rows[0]])
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"The copy of the model that is validated has not changed in {plural(last - first, 'step')}",
        summary=(
            f"All {len(rows)} validations, from step {first:,} to step {last:,}, are made with a copy of the model "
            f"that no optimizer holds, and each gives the same loss, {number(loss)}. The average of the weights is "
            "never updated, or so slowly that it is where it began: what is validated, and perhaps saved, is not what "
            "was trained."
        ),
        fix="Update the average after every optimizer step, and let its decay fit the length of the run: it looks "
        "back on 1 / (1 - decay) steps.",
        fix_code="optimizer.step()\nema.update_parameters(model)   # torch.optim.swa_utils.AveragedModel",
        first_step=first,
        last_step=last,
        evidence=[
            Evidence("validations with the same loss", len(rows), "passes", limits["passes"], limits.source("passes")),
            Evidence("their loss", loss),
            Evidence("steps between the first and the last", last - first, "steps", limits["steps"],
                     limits.source("steps")),
        ],
        location=process.site(evals["site"][rows[0]]) or optimization.step_location,
        charts=pictures.loss(optimization),
        false_alarm="A copy that is kept as a baseline on purpose, without a validation of the model itself.",
    )  # fmt: skip


RULE = Rule(
    id="ema-not-updated",
    family="evaluation",
    severity="warning",
    title="The averaged copy never changes",
    about="An average of the weights that is validated in place of the model has to follow it.",
    check=check,
    verify="Record the run again: the validation loss of the copy changes from pass to pass.",
    needs=(("evals.trained", "evals.loss"),),
    thresholds=(
        Threshold("passes", 3, "passes", "two equal losses may be a pass that was made twice"),
        Threshold("steps", 50, "steps", "an average may begin late"),
        Threshold("equal", 1e-6, "share", "the resolution of a float32 loss: any update shows"),
    ),
    not_when="Copies whose loss changes, baselines beside validations of the model, frozen teachers.",
    references=("https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema",),
)
