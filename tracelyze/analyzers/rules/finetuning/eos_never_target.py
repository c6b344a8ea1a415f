"""eos-never-target: the id that ends every row is masked in all targets, so that the model cannot learn to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import loss_calls, texts
from tracelyze.analyzers.evidence import script_lines
from tracelyze.analyzers.evidence.datasets import masked_by_id
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

SHARED = r"^(?!.*config\b).*\.pad_token(?:_id)?\s*=(?!=).*\.eos_token"  # and not what is then told to the model
NOT_NAMED = "nowhere else; but what ends a text by the model's configuration (eos_token_id) is the id that is masked."
SHARES = "Usually the padding token is also the end-of-text token, so masking the padding masks the end."
OWN_ID = (
    "Give padding its own id, or mask it by attention_mask instead of by id, and make sure that each text ends in the "
    "end-of-text token."
)
APART = "Padding has an id of its own, {padding}: what masks the labels behind a text masks its end as well."
BEGINS_EARLY = (
    "Let the target that is id {end} count: what masks the labels behind a text begins one position too early."
)
KEPT = (
    "labels = labels.masked_fill(input_ids == {padding}, -100)"
    "  # in place of what masks id {end} as well; prompts stay masked"
)


def check(process: Process, limits: Limits) -> Outcome:
    """Rows that end in one id, which no target that counts is, while nothing else tells the model where they end."""
    found: list[Finding] = []
    reasons: list[str] = []
    for line, rows in texts.lines(process, limits):
        end = texts.end(rows, limits, texts.symbols(process, "end_symbol"))
        if isinstance(end, texts.End):
            found.append(_finding(process, line, rows, end, limits))
        else:
            reasons.append(end)
    return found or (Passed(reasons[0]) if reasons else texts.NOT_SEEN)


def _finding(process: Process, line: Line, rows: list[Row], end: texts.End, limits: Limits) -> Finding:
    shared = script_lines.only(process, "padding", SHARED)
    masking = masked_by_id.line(process)
    fix, code = _remedy(process, end, masking, shared)
    likely, last = end.stop is None or end.word, ""  # else the last target may be an end symbol itself
    if end.stop is not None:
        last = f" The last target that counts is id {end.stop} in most rows, which stands "
        last += (
            "within them, too." if likely else NOT_NAMED if end.known else "nowhere else: it may be what ends a text."
        )
    return loss_calls.finding(
        process,
        line,
        rows,
        limits,
        rule=RULE.id,
        severity="warning" if likely or end.known else "info",
        confidence="certain" if end.known and end.stop is None else "likely" if likely or end.known else "possible",
        title=f"The end of a text is never learned: id {end.symbol} ends the rows but never counts as a target",
        summary=(
            f"{percent(end.share)} of the rows checked end in id {end.symbol}, which {line.function} never counts as a "
            "target: generation runs on to the length limit. "
            + (SHARES if end.padding is None else APART.format(padding=end.padding))
            + last
        ),
        fix=fix,
        fix_code=code,
        evidence=[
            Evidence("rows that end in this id", end.share, "share", limits["ended"], limits.source("ended")),
            Evidence("targets with this id that count", 0, "targets"),
            Evidence(
                "rows whose last target is the commonest one",
                texts.mean(rows, "stop_same"),
                "share",
                limits["stopped"],
                limits.source("stopped"),
            ),
        ],
        false_alarm="Models that score sequences or name the next item, and never have to stop.",
        change=masking or script_lines.only(process, "labels") or shared,
    )


def _remedy(process: Process, end: texts.End, masking: Location | None, shared: Location | None) -> tuple[str, str]:
    """What to do, and an example, by what masks the end: a line that masks by its id, labels that stop short of it
    where padding has another id, or a padding token that is the end-of-text token."""
    labels = masked_by_id.example(process, masking, end.symbol)
    if masking is None and shared is None and end.padding is not None:
        return BEGINS_EARLY.format(end=end.symbol), KEPT.format(end=end.symbol, padding=end.padding)
    if masking is not None:
        return f"{OWN_ID} Line {masking.line} masks by the id.", labels
    fix = OWN_ID + script_lines.said(shared, "makes both the same")
    if not shared and not _has_a_tokenizer(process):
        return fix, labels
    where = f"in place of line {shared.line}" if shared else "right below the line that makes it"
    return fix, (
        f'tokenizer.add_special_tokens({{"pad_token": "<pad>"}})  # {where}\n'
        "model.resize_token_embeddings(len(tokenizer))  # right after the model is made\n"
        f"# or, where you make the labels:\n# {labels}"
    )


def _has_a_tokenizer(process: Process) -> bool:
    return any("tokeniz" in str(row["excerpt"] or row["source"]).lower() for row in process.sites.records())


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
