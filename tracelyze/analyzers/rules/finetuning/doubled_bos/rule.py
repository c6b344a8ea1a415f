"""doubled-bos: rows begin with the begin-of-text id twice: the template writes it, and the tokenizer adds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import loss_calls, texts
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.analyzers.rules.finetuning.doubled_bos import begin_symbols
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import capitalized, plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_FIRST = {True: "as an id that the script puts in front,", False: "in the text, as templates write it,"}


def check(process: Process, limits: Limits) -> Outcome:
    """Rows whose first two ids are the same one, which stands nowhere else."""
    found: list[Finding] = []
    looked = 0
    for line, rows in texts.lines(process, limits):
        looked += len(rows)
        if texts.constant(rows, "begin_id") is not None and texts.mean(rows, "begin_twice") >= limits["twice"]:
            found.append(_finding(process, line, rows, limits))
    if found:
        return found
    return Passed(f"{plural(looked, 'batch')} looked at: rows begin with one such id") if looked else texts.NOT_SEEN


def _finding(process: Process, line: Line, rows: list[Row], limits: Limits) -> Finding:
    written = begin_symbols.place(process)
    by_id = begin_symbols.puts_id(process, written)
    begin, twice = int(rows[0]["begin_id"]), texts.mean(rows, "begin_twice")
    remedy = Remedy(
        fix="Leave the id out here: the tokenizer puts it there already."
        if by_id
        else "Add the token in one place: take it out of the text, or tokenize such text without special tokens.",
        code=begin_symbols.without(process, written)
        or "ids = tokenizer(text, add_special_tokens=False)  # text: with the token in it already",
        place=written,
    )
    tokenized = begin_symbols.tokenized(process, written)
    if tokenized is not None and written is not None:
        place, code = tokenized
        fix = f"Line {written.line} writes the token into the text: tokenize it without special tokens in line "
        remedy = Remedy(f"{fix}{place.line}.", code, place)
    fault = LossFault(
        severity="warning",
        confidence="certain" if begin in texts.symbols(process, "begin_symbol") else "likely",
        title=f"Texts begin with the begin-of-text id twice (id {begin})",
        summary=(
            f"{capitalized(share_of(twice, 'rows looked at'))} begin with id {begin} twice, and it occurs nowhere else "
            f"in them: it is added in two places, {_whence(written, by_id)}. "
            "A prompt that begins with it once is a beginning that the model is not trained on."
        ),
        remedy=remedy,
        evidence=[
            Evidence("rows that begin with it twice", twice, "share", *limits.against("twice")),
            Evidence("id", begin),
        ],
        false_alarm="A format that has two start symbols on purpose.",
    )
    return loss_calls.finding(process, line, rows, limits, RULE.id, fault)


def _whence(written: Location | None, by_id: bool) -> str:
    """The two places, as far as they are known."""
    return (
        f"{_FIRST[by_id]} and by the tokenizer"
        if written
        else "of which one is often a template, the other a tokenizer"
    )


RULE = Rule(
    id="doubled-bos",
    family="fine-tuning",
    severity="warning",
    title="Begin-of-text appears twice",
    about="Template and tokenizer both add the begin-of-text token: training and inference see different beginnings.",
    check=check,
    verify="Record the run again: rows begin with the id once.",
    absent="No loss of a language model was seen in the run.",
    excluded=(
        "Padding on the left: what fills rows up to one length is left out first.",
        "Texts that begin this way by chance: the id occurs at the start of all rows, and nowhere else.",
    ),
    needs=(("loss_calls.ids_next", "loss_calls.begin_twice"),),
    thresholds=(
        Threshold("twice", 0.9, "share", "a template does it in every row"),
        texts.NEXT,
        loss_calls.SHARE,
        loss_calls.CALLS,
    ),
    not_when="Padding on the left, texts that begin with a doubled token which is used elsewhere, too.",
    references=("https://huggingface.co/docs/transformers/chat_templating",),
)
