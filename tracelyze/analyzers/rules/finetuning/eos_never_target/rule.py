"""eos-never-target: the id that ends every row is masked in all targets, so that the model cannot learn to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import loss_calls, texts
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.analyzers.rules.finetuning.eos_never_target import masked_by_template, masked_end, row_ends
from tracelyze.analyzers.script import script_lines
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process

SHARED = r"^(?!.*config\b).*\.pad_token(?:_id)?\s*=(?!=).*\.eos_token"  # and not what is then told to the model
NOT_NAMED = "nowhere else; but what ends a text by the model's configuration (eos_token_id) is the id that is masked."


def check(process: Process, limits: Limits) -> Outcome:
    """Rows that end in one id, which no target that counts is, while nothing else tells the model where they end."""
    found: list[Finding] = []
    reasons: list[str] = []
    for line, rows in texts.lines(process, limits):
        templated = masked_by_template.setting(process) is not None
        end = row_ends.of(rows, limits, texts.symbols(process, "end_symbol"), templated)
        if isinstance(end, row_ends.End):
            found.append(_finding(process, line, rows, end, limits))
        else:
            reasons.append(end)
    return found or (Passed(reasons[0]) if reasons else texts.NOT_SEEN)


def _finding(process: Process, line: Line, rows: list[Row], end: row_ends.End, limits: Limits) -> Finding:
    remedy = masked_by_template.remedy(process) or masked_end.remedy(
        process, end.symbol, end.padding, script_lines.only(process, "padding", SHARED)
    )
    likely, last = end.stop is None or end.word, ""  # else the last target may be an end symbol itself
    if end.stop is not None:
        last = f" The last target that counts is id {end.stop} in most rows, which stands "
        last += (
            "within them, too." if likely else NOT_NAMED if end.known else "nowhere else: it may be what ends a text."
        )
    fault = LossFault(
        severity="warning" if likely or end.known else "info",
        confidence="certain" if end.known and end.stop is None else "likely" if likely or end.known else "possible",
        title=f"The end of a text is never learned: id {end.symbol} ends the rows but never counts as a target",
        summary=(
            f"{percent(end.share)} of the rows checked end in id {end.symbol}, which {line.function} never counts as a "
            f"target: nothing here teaches the model to stop. {remedy.why}{last}"
        ),
        remedy=remedy,
        evidence=[
            Evidence("rows that end in this id", end.share, "share", *limits.against("ended")),
            Evidence("targets with this id that count", 0, "targets"),
            Evidence(
                "rows whose last target is the commonest one",
                texts.mean(rows, "stop_same"),
                "share",
                *limits.against("stopped"),
            ),
        ],
        false_alarm="Models that score sequences or name the next item, and never have to stop.",
    )
    return loss_calls.finding(process, line, rows, limits, RULE.id, fault)


RULE = Rule(
    id="eos-never-target",
    family="fine-tuning",
    severity="warning",
    title="The end of a text is never a target",
    about="A language model stops where it has learned to stop. Padding that shares the end-of-text id masks that "
    "target.",
    check=check,
    verify="Record the run again: the id that ends the rows counts as a target.",
    absent="No loss of a language model was seen in the run.",
    excluded=(
        "Streams that are cut into rows: the rows end in one id.",
        "Padding with an id of its own behind an end symbol: the last targets that count have nothing in common.",
        "Answers of one length: the rows differ in how many targets count.",
    ),
    needs=(("loss_calls.ids_next", "loss_calls.end_counts"),),
    thresholds=(
        Threshold("ended", 0.9, "share", "nearly all rows; a few may be cut off at the length limit"),
        Threshold("stopped", 0.5, "share", "most rows end in the same target, if that is what ends a text"),
        Threshold("several", 0.25, "share", "derived: a token that ends a quarter of the rows is within them, too"),
        Threshold("inside", 10, "places", "fewer say little about what follows an id"),
        Threshold(
            "after",
            0.75,
            "share",
            "measured: one token follows 24% to 51% of the full stops of manuals and licences; "
            "behind an end of a turn the next one begins",
        ),
        texts.NEXT,
        loss_calls.SHARE,
        loss_calls.CALLS,
    ),
    not_when="Pretraining on streams, packed rows, answers of one length, padding with an id of its own.",
    references=("https://huggingface.co/docs/transformers/main_classes/data_collator",),
)
