"""padding-in-loss: the positions that only fill up short sequences count in the loss like all others."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import loss_calls, texts
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.evidence import script_lines
from tracelyze.analyzers.evidence.candidates import copied_labels
from tracelyze.analyzers.evidence.editing import own_statement
from tracelyze.analyzers.evidence.remedy import Remedy
from tracelyze.analyzers.evidence.settings import made_losses
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process


FIX_WRITTEN = (
    "Leave the positions that fill up out of the mean: multiply what each position costs by a mask, and divide by the "
    "number of real tokens. A target of -100 picks nothing here: the loss is written out."
)
MASKED = (
    "real = targets != {value}  # or: input_ids != pad_id, where real tokens have class {value} as well\n"
    "loss = (per_token * real).sum() / real.sum()  # per_token: what each position costs, before any mean"
)
OF_IDS = (
    "# above the loss, or in the collator that makes the labels: where the inputs are padding\n"
    "labels = labels.masked_fill(input_ids == pad_id, {ignored})\n"
    "# or, only if no real token has class {value}, as a class of tags may be:\n"
    "# labels = labels.masked_fill(labels == {value}, {ignored})"
)
BY_CLASS = (
    "labels = labels.masked_fill(labels == {value}, {ignored})  # right above the loss\n"
    "# or, where the loss is called or made: ignore_index={value}"
)
UNSET = -100  # torch's default of ignore_index
LOSSES = ("CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss")


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
        remedy=_remedy(process, line, counted, value),
        evidence=[
            Evidence("targets that are padding", share, "share", *limits.against("padding")),
            Evidence("sequences that are filled up", texts.mean(rows, "pad_rows"), "share", *limits.against("rows")),
            Evidence("class of these targets", value),
        ],
        false_alarm="A model that must produce the padding itself, such as one that writes all positions at once.",
    )
    return loss_calls.finding(process, replace(line, rows=rows), counted, limits, RULE.id, fault)


def _remedy(process: Process, line: Line, counted: list[Row], value: int) -> Remedy:
    """Its place is the line to change if that is not the one that computes the loss."""
    if line.function == loss_calls.WRITTEN:
        return Remedy(FIX_WRITTEN, MASKED.format(value=value))
    told = {row.get("ignore_index") for row in counted}
    known = next(iter(told)) if len(told) == 1 else None
    ignored = UNSET if known is None else int(known)
    fix = f"Give padded positions a target that the loss ignores, {'usually' if known is None else 'here'} {ignored}."
    copied = copied_labels.line(process, line.location)
    if copied is not None:
        entry = copied_labels.entry(process, copied)
        code = copied_labels.masked(copied) or (copied_labels.example(entry, ignored) if entry is not None else "")
        code = code or OF_IDS.format(value=value, ignored=ignored)
        return Remedy(fix, code, copied, copied_labels.edit(entry, ignored) if entry is not None else None)
    others = {row.get("pad_elsewhere") for row in counted}
    if others != {0}:
        more = f" If no real token has class {value}, setting it as ignore_index is enough."
        return Remedy(fix + more, OF_IDS.format(value=value, ignored=ignored))
    more = f" Or set it as ignore_index: no other target in these calls has class {value}, so no real token is lost."
    by_name = {UNSET: ""}.get(ignored, r"|[A-Za-z_]")  # a name in another loss may be of any number
    setting = script_lines.only(process, "setting", rf"\bignore_index\s*=\s*(?:{ignored}\b{by_name})")
    own = own_statement.at(process, setting)
    text = own.with_argument(LOSSES, "ignore_index", str(value)) if own is not None else ""
    if own is not None and text:
        return Remedy(fix + more, own.dedented(text), setting)
    made = None if by_name else made_losses.made(process, line.location, made_losses.OVER_CLASSES)
    if made is None:
        return Remedy(fix + more, BY_CLASS.format(value=value, ignored=ignored))
    place, own = made
    text = own.with_argument(LOSSES, "ignore_index", str(value))
    return Remedy(fix + more, own.dedented(text), place, own.changed(text))


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
