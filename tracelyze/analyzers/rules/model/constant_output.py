"""constant-output: the model answers the same whatever it is given, and its loss is that of the best constant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Optimization, Process

CLASSES = ("cross_entropy", "nll_loss")
FUNCTIONS = (
    "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
)  # fmt: skip


def check(process: Process, limits: Limits) -> Outcome:
    """Deviation of the predictions from sample to sample, against that of the targets, late in the run."""
    if len(process.optimizations) != 1:
        return Skipped(
            "several optimizers: an output that does not tell samples apart may be an equilibrium (GAN)",
            "not-applicable",
        )
    optimization = process.optimizations[0]
    if len(optimization.steps) < limits["steps"]:
        return Skipped(f"{plural(len(optimization.steps), 'step')}: the first ones begin with nearly constant outputs")
    judged = 0
    for line in (one for one in loss_calls.lines(process, FUNCTIONS) if one.training):
        rows = [row for row in line.rows if _tells(row, limits)]
        late = [row for row in rows if row["step"] >= limits["late"] * len(optimization.steps)]
        if len(rows) < limits["looks"] or not late:
            continue
        judged += 1
        bound = limits["shares"] if line.function in CLASSES else limits["varies"]
        if all(row["varies"] < bound * row["target_varies"] for row in late) and _is_flat(optimization, limits):
            return [_tell(process, line, late, bound, limits)]
    if not judged:
        return Skipped("no loss whose predictions and targets could be compared sample by sample late in the run")
    return Passed(f"predictions differ from sample to sample at {plural(judged, 'line')} that computes a loss")


def _tells(row: Row, limits: Limits) -> bool:
    """Whether targets of the look differ, so that predictions should; most of them have to count, and of tokens and
    other large sets of classes the frequencies alone take long to learn."""
    known = row["varies"] is not None and row["target_varies"] is not None
    shape = loss_calls.sizes(row["input_shape"])
    few = row["function"] not in CLASSES or (len(shape) > 1 and shape[1] <= limits["classes"])
    return bool(known and few and row["target_varies"] > 0 and (row["ignored"] or 0.0) < limits["ignored"])


def _is_flat(optimization: Optimization, limits: Limits) -> bool:
    """Whether the loss of the last fifth is that of the third fifth: what is slow to begin is on its way down."""
    loss = optimization.steps["loss"]
    fifth = len(loss) // 5
    middle, end = loss[2 * fifth : 3 * fifth], loss[-fifth:]
    if not (np.isfinite(middle).any() and np.isfinite(end).any()):
        return False
    return float(np.nanmedian(end)) >= limits["falls"] * float(np.nanmedian(middle))


def _tell(process: Process, line: Line, stretch: list[Row], bound: float, limits: Limits) -> Finding:
    ratio = float(np.median([row["varies"] / row["target_varies"] for row in stretch]))
    said = "" if percent(ratio) == "0%" else f": predictions vary {percent(ratio)} as much as targets"
    return loss_calls.finding(
        process, line, stretch, limits,
        rule=RULE.id,
        title="The model gives every input the same answer" + said,
        summary=(
            f"At step {int(stretch[0]['step']) + 1:,}, the predictions in {line.where} differ from sample to sample by "
            f"{percent(ratio)} of what the targets do: the model gives one answer to everything, about the mean of the "
            "targets, and its loss no longer falls. One term of the loss swamps the other, units are dead, a step was "
            "too large, or one class is nearly all."
        ),
        fix="Log each term of the loss by itself and weigh them alike; overfit one small batch first. If a term keeps "
        "the output at a constant, lower its weight or raise it slowly.",
        fix_code="print({name: term.item() for name, term in terms.items()})",
        evidence=[
            Evidence("deviation of the predictions over that of the targets", ratio, "share", bound,
                     limits.source("varies")),
        ],
        false_alarm="Targets that the input says nothing about, as random labels.",
        severity="warning",
        confidence="likely",
    )  # fmt: skip


RULE = Rule(
    id="constant-output",
    family="model",
    severity="warning",
    title="The output is the same for every input",
    about="A model that ignores its input can do no better than the mean of the targets.",
    check=check,
    verify="Record the run again: predictions differ from sample to sample.",
    needs=(("loss_calls.varies", "loss_calls.target_varies"),),
    thresholds=(
        Threshold("varies", 0.1, "share", "derived: its square, a hundredth, is the variance that is explained"),
        Threshold("shares", 0.05, "share", "of class shares, which are smooth: a quarter of a hundredth is explained"),
        Threshold("classes", 20, "classes", "of many, the frequencies alone take hundreds of steps to learn"),
        Threshold("looks", 8, "looks", "without them it is not known how much targets differ"),
        Threshold("late", 0.4, "share", "of the run: the first part of a long training may look so"),
        Threshold("steps", 150, "steps", "the first steps begin with nearly constant outputs"),
        Threshold("falls", 0.9, "share", "last fifth of the run against the third: less is noise"),
        loss_calls.CALLS,
        Threshold("ignored", 0.5, "share", "of the targets: most of them have to count"),
    ),
    not_when="First steps, several optimizers, constant targets, batches of fewer than eight samples.",
)  # fmt: skip
