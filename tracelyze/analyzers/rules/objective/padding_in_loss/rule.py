"""padding-in-loss: the positions that only fill up short sequences count in the loss like all others."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import loss_calls, texts
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.objective.padding_in_loss import of_padding
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """Ends of rows that one id fills, with one target that nothing excludes."""
    findings: list[Finding] = []
    looked = 0
    for line in loss_calls.lines(process, loss_calls.OF_TOKENS):
        rows = [row for row in line.rows if row["pad_share"] is not None]
        padded = [row for row in rows if row["pad_share"] > 0]
        counted = [row for row in padded if row["pad_same"] >= limits["same"]]
        looked += len(rows)
        if len(counted) < limits["calls"] or len(counted) < limits["constant"] * len(padded):
            continue
        if len({row["pad_target"] for row in counted}) > 1 or texts.mean(rows, "pad_rows") < limits["rows"]:
            continue
        if texts.mean(rows, "pad_share") >= limits["padding"]:
            findings.append(_finding(process, line, rows, counted, limits))
    if findings:
        return findings
    if looked:
        return Passed(f"{plural(looked, 'call')} with sequences of ids looked at: little padding that counts")
    return Skipped("no training loss names a class for every token of a sequence", "not-applicable")


def _finding(process: Process, line: Line, rows: list[Row], counted: list[Row], limits: Limits) -> Finding:
    share, value = math.floor(texts.mean(rows, "pad_share") * 100) / 100, int(counted[0]["pad_target"])
    least = f"at least {percent(share)}"  # a row's first such target may be its end symbol
    fault = LossFault(
        severity="warning",
        title=f"Padding counts in the loss: {least} of the targets of {line.function}",
        summary=(
            f"Short sequences are padded at the end, and {line.function} counts these positions like all others: "
            f"{least} of its targets in {plural(len(rows), 'call')} that were looked at, all of class {value}. Most "
            "models soon know padding by heart: the loss then looks better than the model is, and real tokens count "
            "for less in each step."
        ),
        remedy=of_padding.remedy(process, line, counted, value),
        evidence=[
            Evidence("targets that are padding", share, "share", *limits.against("padding")),
            Evidence("sequences that are filled up", texts.mean(rows, "pad_rows"), "share", *limits.against("rows")),
            Evidence("class of these targets", value),
        ],
        false_alarm="A model that must produce the padding itself, such as one that writes all positions at once.",
    )
    return loss_calls.finding(process, replace(line, rows=rows), counted, limits, RULE.id, fault)


RULE = Rule(
    id="padding-in-loss",
    family="loss",
    severity="warning",
    title="Padding counts in the loss",
    about="Padding teaches nothing; if it counts in the loss, it dilutes the tokens that matter.",
    check=check,
    verify="Record the run again: padding no longer counts in the loss.",
    excluded=(
        "ignore_index or a weight of zero: these targets count.",
        "A frequent class: the same target fills the ends of most rows.",
    ),
    absent="The run calls no loss over sequences of tokens.",
    needs=(("loss_calls.pad_share", "loss_calls.pad_same"),),
    thresholds=(
        Threshold("padding", 0.2, "share", "a fifth: the loss reads a quarter better than it is once padding is easy"),
        Threshold("rows", 0.5, "share", "most rows: each batch has one longest, the others are filled up to it"),
        Threshold("same", 0.99, "share", "padding has one target; whatever real ones there are differ"),
        Threshold("constant", 0.9, "share", "of the calls: batches of equal lengths have none"),
        loss_calls.CALLS,
    ),
    not_when="ignore_index or a weight of zero that leaves them out, losses that are not reduced (a mask may follow), "
    "frequent classes, one end symbol per sequence, packed sequences, ids that are used elsewhere too.",
)
