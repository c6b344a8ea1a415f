"""target-in-input: a model sees what it is to say: targets not shifted, no causal mask, the label among the inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.objective.target_in_input import (
    both_directions,
    course,
    label_columns,
    same_slice,
    unmasked,
)
from tracelyze.analyzers.script import line_edits
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import capitalized, percent, plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process

FIX = "Make the target at position t the token at position t + 1, once: either in the data or in front of the loss."


def check(process: Process, limits: Limits) -> Outcome:
    """Targets that are the ids embedded at their own positions, of models that see nothing later; targets that are the
    next ids, of models whose attention sees them; and targets that are one of the numbers a model is given."""
    findings, judged = label_columns.findings(process, RULE.id, limits)
    causal = looked = False
    for line in loss_calls.lines(process, loss_calls.SCORED):
        rows = [row for row in line.rows if row["ids_equal"] is not None and row["ids_compared"] >= limits["targets"]]
        looked |= bool(rows)
        blind = [row for row in rows if row["sees_later"] == 0.0]  # exactly: masked weights are
        causal |= len(blind) >= max(limits["calls"], limits["share"] * len(rows))
        same = [row for row in blind if row["ids_equal"] >= limits["equal"]]
        if len(same) >= limits["calls"] and len(same) >= limits["share"] * len(rows):
            findings.append(_finding(process, line, rows, same, limits))
        attended = [
            row for row in line.rows if row.get("sees_next") is not None and row["next_targets"] >= limits["targets"]
        ]
        looked |= bool(attended)
        leaking = [row for row in attended if row["sees_next"] >= limits["seen"]]
        causal |= len(attended) - len(leaking) >= limits["calls"]
        if len(leaking) >= max(limits["calls"], limits["share"] * len(attended)):
            findings.append(_unmasked(process, line, attended, leaking, limits))
    if findings:
        return findings
    if causal:
        return Passed("no model that reads from the left was seen to be given the id that it is to name")
    if judged:
        return Passed(f"no input is the target of its sample, at {plural(judged, 'line')} that computes a loss")
    if looked:
        return Skipped("at too few calls a position was seen to see only itself and earlier ones", "not-applicable")
    return Skipped(
        "no training loss has a target for every token of a sequence, or one for each sample of a table of numbers",
        "not-applicable",
    )


def _finding(process: Process, line: Line, rows: list[Row], same: list[Row], limits: Limits) -> Finding:
    equal = float(np.median([row["ids_equal"] for row in same]))
    fall = course.said(process, line.rows)
    cut_alike = same_slice.remedy(process, line.location) or same_slice.handed_out(process)
    remedy = cut_alike or Remedy(FIX, line_edits.shifted(process, line.location), why=same_slice.not_shifted(process))
    fault = LossFault(
        title="Targets are not shifted: the model learns to copy its input, not to predict",
        summary=(
            f"{capitalized(share_of(equal, 'compared targets'))} of {line.function} are the token that the model read "
            f"at the same position, although no position sees later ones: {remedy.why}{fall} Copying "
            "lowers the loss, which says nothing of predictions: generated text repeats one token."
        ),
        remedy=remedy,
        repeated=cut_alike is None,
        evidence=[
            Evidence("targets equal to the input at their position", equal, "share", *limits.against("equal")),
            _compared([row["ids_compared"] for row in same], limits),
            Evidence("weight of a position on later ones", 0.0),
        ],
        false_alarm="A model meant to repeat its current input, as a test of the pipeline.",
    )
    return loss_calls.finding(process, replace(line, rows=rows), same, limits, RULE.id, fault)


def _unmasked(process: Process, line: Line, rows: list[Row], bad: list[Row], limits: Limits) -> Finding:
    seen = float(np.median([row["sees_next"] for row in bad]))
    both = both_directions.of(process)
    reads = f"at {percent(seen)} of them attention gives weight to that next token"
    if both is not None:
        reads = f"the {both.kind} that line {both.made.line} makes has read that next token: it also runs backwards"
    fault = LossFault(
        title="No causal mask: the model sees the next token it has to predict"
        if both is None
        else f"The model reads the token it has to predict: its {both.kind} also runs backwards",
        summary=(
            f"The targets of {line.function} are the next tokens of the model's input, and {reads}."
            f"{course.said(process, line.rows)} The model learns to copy what it sees. When it generates, there is no "
            "next token to see: the loss says nothing about it."
        ),
        remedy=_masked(process) if both is None else both.remedy,
        evidence=[
            Evidence("next tokens that the model sees", seen, "share", *limits.against("seen")),
            _compared([row["next_targets"] for row in bad], limits),
        ],
        false_alarm="A model that sees its whole input and is meant to shift it by one, as a test.",
    )
    return loss_calls.finding(process, replace(line, rows=rows), bad, limits, RULE.id, fault)


def _masked(process: Process) -> Remedy:
    place = unmasked.place(process)
    return Remedy(
        fix="Mask attention so that no position sees a later one, in every layer that mixes positions.",
        code=unmasked.example(process, place),
        place=place,
    )


def _compared(counts: list[float], limits: Limits) -> Evidence:
    usual = float(np.median(counts))
    return Evidence("targets compared at a call", usual, "targets", *limits.against("targets"), role="basis")


RULE = Rule(
    id="target-in-input",
    family="loss",
    severity="critical",
    title="Targets that the model sees in its input",
    about="Unshifted targets, attention without a causal mask, layers that also read backwards, or a label left among "
    "the columns of a table: the model copies the answer and learns nothing.",
    check=check,
    verify="Record the run again: no target is a token that its position was given or attends to.",
    excluded=(
        "Autoencoders, masked language models and encoders beside a decoder: their targets are not the next tokens.",
        "Models that shift their input themselves: the tokens compared are those that were embedded.",
    ),
    absent="The run calls no loss over sequences of tokens.",
    needs=(("loss_calls.ids_equal", "loss_calls.sees_later"), ("loss_calls.column_same",)),
    thresholds=(
        Threshold("equal", 0.99, "share", "all are where nothing was shifted; shifted ones none, where ids differ from "
                  "the next; inputs corrupted for denoising differ in more than one of a hundred"),
        Threshold("targets", 16, "targets", "of two classes at random, 16 agree once in 65,000 calls"),
        Threshold("seen", 0.9, "share", "1 without a mask, but for padding that counts; 0 with one; a prefix that sees "
                  "itself leaves out what follows it"),
        Threshold("correlation", 1 - 1e-6, "", "derived: float32 rounds to 6e-8, which leaves 1 - 1e-12 of a copy"),
        Threshold("samples", 200, "samples", "a feature that is right about a class in 98% is wrong in one of them"),
        Threshold("foretells", 0.2, "", "of the correlation, above the largest one that chance gives so many columns"),
        loss_calls.SHARE,
        loss_calls.CALLS,
    ),
    not_when="Features that predict a class almost always, numbers to be copied that stand among unrelated ones, "
    "autoencoders, masked language models, prefixes that see themselves, denoising, taggers and copying by "
    "models that see both sides, models that shift their input themselves.",
)  # fmt: skip
