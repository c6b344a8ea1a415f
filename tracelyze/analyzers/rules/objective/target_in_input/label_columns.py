"""One of the numbers that a model is given for each sample is the target of that sample."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls, predictions
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Evidence
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Finding

BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")


def findings(process: Process, rule: str, limits: Limits) -> tuple[list[Finding], int]:
    """A finding for each such line, and how many lines with one target per sample could be judged."""
    found: list[Finding] = []
    judged = 0
    for line in loss_calls.lines(process, predictions.FUNCTIONS):
        rows = [row for row in line.rows if line.training and (row.get("column_rows") or 0) > 0]
        if len(rows) < limits["calls"]:
            continue
        judged += 1
        same = [row for row in rows if row["column_same"] >= limits["correlation"]]
        if len(same) == len(rows) and _is_no_task(line, rows, limits):
            found.append(_finding(process, line, rows, rule, limits))
    return found, judged


def _is_no_task(line: Line, rows: list[Row], limits: Limits) -> bool:
    """Whether this is no exercise whose target is meant to be one of its inputs.

    A feature that predicts a class differs from it now and then. A number to be copied or scaled stands among columns
    that have nothing to do with it; in a table, and in a window of a series, others predict the target as well.
    """
    if line.function in predictions.CLASSES or line.function in BINARY:
        return bool(sum(row["column_rows"] for row in rows) >= limits["samples"])
    other = float(np.median([row["column_other"] for row in rows]))
    return other >= predictions.chance(rows) + limits["foretells"]


def _finding(process: Process, line: Line, rows: list[Row], rule: str, limits: Limits) -> Finding:
    numbers, samples = int(rows[-1]["columns"]), int(sum(row["column_rows"] for row in rows))
    places = {int(row["column"]) for row in rows}
    where = f"number {places.pop()} of {numbers}, counted from 0" if len(places) == 1 else f"of {numbers} in all"
    other = float(np.median([row["column_other"] for row in rows]))
    remedy = Remedy(
        fix="Remove the target, and everything computed from it, from the inputs; end windows before the value to "
        "predict.",
        code='features = table.drop(columns=["target"])\n# of a series: x, y = series[i : i + n], series[i + n]',
    )
    fault = LossFault(
        title=f"One of the model's {numbers} inputs is the target itself",
        summary=(
            f"In all {samples:,} samples checked, the model's input contains the target of {line.where} ({where}), at "
            f"most scaled and shifted. The next best input has a correlation of {percent(other)} with it. The model "
            "learns to copy the answer. Its loss and accuracy mean nothing, not even on validation data: in real use, "
            "where the answer is not known yet, it has nothing to go by."
        ),
        remedy=remedy,
        evidence=[
            Evidence(
                "correlation of an input with the target, smallest of the measurements",
                min(row["column_same"] for row in rows),
                "",
                *limits.against("correlation"),
            ),
            Evidence("samples compared", samples, "samples", role="basis"),
            Evidence("correlation of the next best input", other),
        ],
        confidence="likely",
        false_alarm="An exercise in which the model has to find the one input that is the answer.",
    )
    return loss_calls.finding(process, replace(line, rows=rows), rows, limits, rule, fault)
