"""target-in-input: a model that reads a sequence from the left is to name the id that it was just given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, percent

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """Targets that are the ids embedded at their own positions, of models that see nothing later."""
    findings: list[Finding] = []
    causal = looked = False
    for line in loss_calls.lines(process, ("cross_entropy", "nll_loss")):
        rows = [row for row in line.rows if row["ids_equal"] is not None and row["ids_compared"] >= limits["targets"]]
        looked |= bool(rows)
        told = [row for row in rows if row["sees_later"] == 0.0]  # exactly: masked weights are
        causal |= len(told) >= max(limits["calls"], limits["share"] * len(rows))
        same = [row for row in told if row["ids_equal"] >= limits["equal"]]
        if len(same) >= limits["calls"] and len(same) >= limits["share"] * len(rows):
            findings.append(_finding(process, line, rows, same, limits))
    if findings:
        return findings
    if causal:
        return Passed("the targets of the models that see no later position are not the ids at their own position")
    if looked:
        return Skipped("at too few calls a position was seen to see only itself and earlier ones", "not-applicable")
    return Skipped("no training loss names a class for every token of an embedded sequence", "not-applicable")


def _finding(process: Process, line: Line, rows: list[Row], same: list[Row], limits: Limits) -> Finding:
    equal = float(np.median([row["ids_equal"] for row in same]))
    shape, values = loss_calls.shown(same[0]["target_shape"]), [row["value"] for row in line.rows]
    known = [value for value in values if value is not None]
    fall = f" The loss went from {number(known[0])} to {number(known[-1])}." if len(known) > 1 else ""
    return loss_calls.finding(
        process, replace(line, rows=rows), same, limits,
        rule=RULE.id,
        title="Targets are not shifted: the model learns to copy its input, not to predict",
        summary=(
            f"{percent(equal)} of the targets {shape} of {line.function} are the id that the model embedded at the "
            "same position, and no position of it sees later ones: it is a model for the next token, and the targets "
            f"were not shifted.{fall} The loss goes towards 0 and means nothing: the identity is learned, and what is "
            "generated repeats one token."
        ),
        fix="Let the target at position t be the token at position t + 1, once: either in the data or in front of the "
        "loss.",
        fix_code="inputs, targets = tokens[:, :-1], tokens[:, 1:]\n"
        "loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())",
        evidence=[
            Evidence("targets equal to the input at their position", equal, "share", limits["equal"],
                     limits.source("equal")),
            Evidence("targets compared at a call", float(np.median([row["ids_compared"] for row in same])), "targets",
                     limits["targets"], limits.source("targets")),
            Evidence("weight of a position on later ones", 0.0),
        ],
        false_alarm="A model that is to name its current input on purpose, as a test of the machinery.",
    )  # fmt: skip


RULE = Rule(
    id="target-in-input",
    family="loss",
    severity="critical",
    title="Targets that were not shifted",
    about="A model that reads from the left and is to name its own input copies it: loss near 0, nothing learned.",
    check=check,
    verify="Record the run again: hardly any target equals the token at its own position.",
    excluded=(
        "Autoencoders and masked language models: no position of this model sees later ones.",
        "Models that shift their input themselves: the tokens compared are those that were embedded.",
    ),
    absent="The run calls no loss over sequences of tokens.",
    needs=(("loss_calls.ids_equal", "loss_calls.sees_later"),),
    thresholds=(
        Threshold("equal", 0.99, "share", "all are where nothing was shifted; shifted ones none, where ids differ from "
                  "the next; inputs corrupted for denoising differ in more than one of a hundred"),
        Threshold("targets", 16, "targets", "of two classes at random, 16 agree once in 65,000 calls"),
        loss_calls.SHARE,
        loss_calls.CALLS,
    ),
    not_when="Autoencoders, masked language models, denoising, taggers and copying by models that see both sides, "
    "models that shift their input themselves.",
)  # fmt: skip
