"""A recurrent model whose state grows from position to position, from the first step on, and never comes down."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.computed.optimization import ratios, style
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rule import Limits

KINDS = ("RNN", "GRU", "LSTM")
UNROLLED = 5  # calls of one module in a forward: a cell that is called for every position
LOSSES = (*style.REGRESSIONS, loss_calls.WRITTEN_OUT)


def finding(optimization: Optimization, rule: str, limits: Limits) -> Finding | None:
    """Predictions many times as far apart as the targets, at the start and in the later half of the run alike, beside
    gradients many times as large as the weights."""
    process, steps = optimization.process, len(optimization.steps)
    rows = [
        row
        for line in loss_calls.lines(process, LOSSES)
        for row in line.rows
        if line.training and row["varies"] is not None and row["target_varies"]
    ]
    late = [row for row in rows if row["step"] >= steps / 2]
    if len(rows) < limits["looks"] or not late or not _recurrent(process):
        return None
    apart = min(row["varies"] / row["target_varies"] for row in (rows[0], *late))
    seen = ratios.of(optimization)
    gradient = seen.gradient[seen.step >= steps / 2]
    gradient = gradient if len(gradient) else seen.gradient[-1:]
    if apart < limits["apart"] or not len(gradient) or not float(np.median(gradient)) >= limits["gradient"]:
        return None
    per_weight = float(np.median(gradient))
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=f"Gradients explode through the positions of a sequence: {number(per_weight)} times the weights",
        summary=(
            f"From the first step on, the model's predictions are at least {number(apart)} times as far apart as the "
            f"targets, and in the later half of the run gradients still are {number(per_weight)} times as large as the "
            "weights they belong to. The recurrent weights multiply the state at every position, and its gradient on "
            "the way back: what is too large grows geometrically with the length of the sequence."
        ),
        fix="Initialise the recurrent weights orthogonally, or use GRU or LSTM; clip gradients, and unroll fewer "
        "positions.",
        fix_code="for name, weight in model.named_parameters():  # right after the model is made\n"
        "    is_square = weight.dim() == 2 and weight.size(0) == weight.size(1)\n"
        '    if "weight_hh" in name or is_square:\n        torch.nn.init.orthogonal_(weight)',
        first_step=1,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence(
                "deviation of the predictions over that of the targets, smallest",
                apart,
                "",
                *limits.against("apart"),
                role="most",
            ),
            Evidence("gradient per weight, later half", per_weight, "", *limits.against("gradient"), role="most"),
        ],
        location=optimization.backward_location,
        charts=pictures.grad_norm(optimization) + pictures.loss(optimization),
        false_alarm="Targets that are nearly constant in most batches.",
    )


def _recurrent(process: Process) -> bool:
    calls: Counter[tuple[object, object]] = Counter()
    for row in process.tables["activations"].records():
        if any(kind in (row["kind"] or "") for kind in KINDS):
            return True
        calls[row["step"], row["module"]] += 1
    return any(count >= UNROLLED for count in calls.values())
