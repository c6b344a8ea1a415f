"""packing-without-boundaries: several samples share a row, and attention looks from one into those before it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import loss_calls, texts
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """Rows with several end symbols, and weights of attention across them."""
    found: list[Finding] = []
    reasons: list[str] = []
    unreadable = cut = False
    for line, rows in texts.lines(process, limits):
        packed = [row for row in rows if row["parts"] >= limits["parts"]]
        seen = [row for row in packed if not math.isnan(row["crosses"])]
        if all(row["parts"] == 0 and (row["ignored"] or 0) > 0 for row in rows):
            cut = True
        elif len(packed) < limits["share"] * len(rows):
            looked_at = f"{plural(len(rows), 'batch')} looked at"
            anywhere = all(row["parts"] == 0 for row in rows)
            what = (
                "rows begin and end anywhere, as in pretraining"
                if anywhere
                else "not several whole samples in each row"
            )
            reasons.append(f"{looked_at}: {what}")
        elif len(seen) < limits["calls"]:
            unreadable = True
        elif max(row["crosses"] for row in seen) < limits["weight"]:
            reasons.append("attention gives no weight to other samples of a row")
        else:
            found.append(_finding(process, line, seen, limits))
    if found:
        return found
    if unreadable:
        return Skipped("rows hold several samples, but the attention of this model could not be read")
    if cut and not reasons:
        return Skipped(
            "no one id begins or ends every row, and targets are masked: rows may hold several samples, or parts"
        )
    return Passed(reasons[0]) if reasons else texts.NOT_SEEN


def _finding(process: Process, line: Line, rows: list[Row], limits: Limits) -> Finding:
    parts = texts.mean(rows, "parts")
    crosses = max(row["crosses"] for row in rows)
    return loss_calls.finding(
        process,
        line,
        rows,
        limits,
        rule=RULE.id,
        severity="info",
        confidence="likely",
        title=f"Packed samples see each other: {number(parts)} in a row, and no mask between them",
        summary=(
            f"A row holds {number(parts)} samples on average, one behind the other, and attention gives weights of up "
            f"to {percent(crosses)} to samples before the one that it is at. Each sample is learned with a context of "
            "strangers that it will not have later. Pretraining does this on purpose, and long contexts may gain by "
            "it; short fine-tuning samples lose."
        ),
        fix="Keep the samples of a row apart: position ids that start anew with each, and a block-diagonal mask or an "
        "attention that takes the lengths of the samples.",
        fix_code="DataCollatorWithFlattening(return_position_ids=True)   # transformers; in TRL: padding_free=True",
        evidence=[
            Evidence("samples in a row", parts, "samples", limits["parts"], limits.source("parts")),
            Evidence("largest weight on another sample", crosses, "share", limits["weight"], limits.source("weight")),
        ],
        false_alarm="Pretraining, where documents are concatenated on purpose; turns of one conversation.",
    )


RULE = Rule(
    id="packing-without-boundaries",
    family="fine-tuning",
    severity="info",
    title="Packed samples see each other",
    about="Several samples in a row save padding; without a mask between them each gets the others as its context.",
    check=check,
    settings=("packing",),
    verify="Record the run again: attention gives no weight to other samples.",
    absent="The run trains no language model, as far as its losses were seen.",
    needs=(("loss_calls.ids_next", "loss_calls.parts"),),
    thresholds=(
        Threshold("parts", 2, "samples", "derived: one sample in a row has nobody beside it"),
        Threshold("weight", 1e-6, "", "derived: what is masked has a weight of zero, or of exp(-1e4) at most"),
        texts.NEXT,
        loss_calls.SHARE,
        loss_calls.CALLS,
    ),
    not_when="Streams that are cut without regard to documents (pretraining), masks between the samples.",
    references=("https://huggingface.co/blog/packing-with-FA2",),
)
