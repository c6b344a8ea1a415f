"""eos-never-target: the id that ends every row is masked in all targets, so that the model cannot learn to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import loss_calls, texts
from tracelyze.analyzers.evidence import script_lines
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """Rows that end in one id, which no target that counts is, and whose last targets have nothing in common."""
    found: list[Finding] = []
    reasons: list[str] = []
    for line, rows in texts.lines(process, limits):
        reason = _healthy(rows, limits, texts.symbols(process, "end_symbol"))
        if reason is None:
            found.append(_finding(process, line, rows, limits))
        else:
            reasons.append(reason)
    return found or (Passed(reasons[0]) if reasons else texts.NOT_SEEN)


def _healthy(rows: list[Row], limits: Limits, known: set[int]) -> str | None:
    """Why the model can learn where a text ends, or why that is not known; None if it cannot learn it."""
    looked = plural(len(rows), "batch")
    end = texts.constant(rows, "end_id")
    if end is None or texts.mean(rows, "end_rows") < limits["ended"]:
        return f"in {looked} that were looked at, rows do not end in one id"
    if any(row["end_counts"] for row in rows):
        return f"id {end:.0f}, in which rows end, is a target that counts in {looked}"
    same = [row for row in rows if row["stop_same"] >= limits["stopped"] and row["stop_id"] == rows[0]["stop_id"]]
    if len(same) == len(rows):
        return f"the last target that counts is id {rows[0]['stop_id']:.0f} in most rows of {looked}"
    if len({row[name] for row in rows for name in ("targets_least", "targets_most")}) == 1:
        return "all rows have the same number of targets that count: where to stop is not to be learned"
    least = sorted(row["end_least"] for row in rows)
    if int(end) not in known and least[len(rows) // 2] != 1:
        return f"rows end in id {end:.0f}, which may be nothing but padding: nothing shows that it ends a text"
    return None


def _finding(process: Process, line: Line, rows: list[Row], limits: Limits) -> Finding:
    end = int(rows[0]["end_id"])
    ended = texts.mean(rows, "end_rows")
    return loss_calls.finding(
        process,
        line,
        rows,
        limits,
        rule=RULE.id,
        severity="warning",
        confidence="certain" if end in texts.symbols(process, "end_symbol") else "likely",
        title=f"The end of a text is never learned: id {end} ends the rows and is no target that counts",
        summary=(
            f"{percent(ended)} of the rows that were looked at end in id {end}, which {line.function} never counts as "
            "a target: what the model generates runs on to the length limit. Usually the padding token is the "
            "end-of-text token as well, so that whatever masks the padding masks the end."
        ),
        fix="Give padding an id of its own, or mask it by attention_mask instead of by its id; see that each text "
        "ends in the end-of-text token.",
        fix_code='tokenizer.add_special_tokens({"pad_token": "<pad>"})  # in place of pad_token = eos_token\n'
        "model.resize_token_embeddings(len(tokenizer))  # right after the model is made\n"
        "# or, where you make the labels:\n"
        '# labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)',
        evidence=[
            Evidence("rows that end in this id", ended, "share", limits["ended"], limits.source("ended")),
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
        change=script_lines.only(process, "labels"),
    )


RULE = Rule(
    id="eos-never-target",
    family="fine-tuning",
    severity="warning",
    title="The end of a text is never a target",
    about="A language model stops where it has learned to. Padding that shares the end-of-text id masks that away.",
    check=check,
    verify="Record the run again: the id that ends the rows is a target that counts.",
    absent="The run trains no language model, as far as its losses were seen.",
    excluded=(
        "Streams that are cut into rows: the rows end in one id.",
        "Padding with an id of its own behind an end symbol: the last targets that count have nothing in common.",
        "Answers of one length: the rows differ in how many targets count.",
    ),
    needs=(("loss_calls.ids_next", "loss_calls.end_counts"),),
    thresholds=(
        Threshold("ended", 0.9, "share", "nearly all rows; a few may be cut off at the length limit"),
        Threshold("stopped", 0.5, "share", "most rows end in the same target, if that is what ends a text"),
        texts.NEXT,
        loss_calls.SHARE,
        loss_calls.CALLS,
    ),
    not_when="Pretraining on streams, packed rows, answers of one length, padding with an id of its own.",
    references=("https://huggingface.co/docs/transformers/main_classes/data_collator",),
)
