"""labels-shifted-twice: targets are the ids two positions later: shifted by the script, and again by the model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.analyzers.rules.finetuning.labels_shifted_twice import label_shifts
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.candidates import copied_labels
from tracelyze.analyzers.script.editing.remade import frameworks
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process

_LOSS = re.compile(r"cross_entropy|nll_loss|crit\w*\(|loss\w*\(")
_HANDS_OVER = re.compile(r"\.train\(|\blabels\s*=|\*\*")
OF_TRANSFORMERS = "Pass labels aligned with their input ids{}: transformers models shift them internally."
IGNORED = ", keeping -100 where it stands today"
LAST_LOST = (
    " The last id of a row is then no target: where that is an end symbol, pass whole rows, as ids and as labels."
)
ONCE = "Shift the labels once, either in the data or in front of the loss: the target at position t is the id at t + 1."
ONCE_CODE = "inputs, targets = tokens[:, :-1], tokens[:, 1:]  # here or in the data, and nowhere else"
TWICE = {
    True: "The labels were already shifted by one when they were passed in, and the model shifts them again.",
    False: "The labels are shifted by two in all, as if the data and the loss each shifted them by one.",
}
FUNCTIONS = ("cross_entropy", "nll_loss")


def check(process: Process, limits: Limits) -> Outcome:
    """Targets of a sequence model beside the ids that it embedded two positions later."""

    def wrong(row: Row) -> bool | None:
        if not row["ids_compared"] or row["ids_compared"] < limits["ids"] or row["ids_ahead"] is None:
            return None
        return bool(row["ids_ahead"] >= limits["equal"])

    outcome = loss_calls.judge(
        process, FUNCTIONS, wrong, lambda line, bad: _finding(process, line, bad, limits), limits
    )
    if isinstance(outcome, list) and _learns_the_next(process, limits):
        return Passed("another loss of the training is about the next token: heads that predict several tokens ahead")
    return outcome


def _learns_the_next(process: Process, limits: Limits) -> bool:
    """Whether the targets of a line that trains are the next ids, at nearly every call."""
    for line in loss_calls.lines(process, FUNCTIONS):
        shares = [row["ids_next"] for row in line.rows if row["ids_next"] is not None]
        following = [share for share in shares if share >= limits["equal"]]
        if line.training and len(following) >= max(limits["calls"], limits["share"] * len(shares)):
            return True
    return False


def _finding(process: Process, line: Line, bad: list[Row], limits: Limits) -> Finding:
    share, library = min(row["ids_ahead"] for row in bad), _of_transformers(process, line)
    change = script_lines.shifting(process) or copied_labels.assigned(process)
    diff = label_shifts.unshifted(process, change)
    aligned = OF_TRANSFORMERS.format(IGNORED * label_shifts.ignores(process))
    remedy = Remedy(
        fix=aligned + LAST_LOST * label_shifts.cuts_the_last(diff) if library else ONCE,
        code=label_shifts.example(process, line.location, change) if library else ONCE_CODE,
        place=change,
        diff=diff,
    )
    fault = LossFault(
        title="Labels are shifted twice: the model learns to predict the token after the next one",
        summary=(
            f"In {share_of(share, 'positions compared')}, the target of {line.where} is the id that the model is given "
            f"two positions later. {TWICE[library]} The model never learns the next token; generated text skips every "
            "other token."
        ),
        remedy=remedy,
        evidence=[
            Evidence("targets that are the id two positions later", share, "share", *limits.against("equal")),
        ],
        false_alarm="A head meant to predict the token after the next one.",
        repeated=True,
    )
    return loss_calls.finding(process, line, bad, limits, RULE.id, fault)


def _of_transformers(process: Process, line: Line) -> bool:
    """Whether a model of the library may compute the loss: the line of the script that does so calls no loss itself."""
    source = line.location.source if line.location is not None else ""
    return not _LOSS.search(source) and (bool(_HANDS_OVER.search(source)) or frameworks.transformers(process))


RULE = Rule(
    id="labels-shifted-twice",
    family="fine-tuning",
    severity="critical",
    title="Labels are shifted twice",
    about="Causal language models in transformers shift the labels internally. Labels that are already shifted end up "
    "off by two.",
    check=check,
    verify="Record the run again: targets are the id of the next position.",
    excluded=(
        "Data that repeat themselves: only positions whose next id is another one are compared.",
        "A second head for the token after the next one: no loss of the training is about the next token.",
    ),
    needs=(("loss_calls.ids_ahead",),),
    thresholds=(
        Threshold("equal", 0.95, "share", "derived: targets of the next id equal the one after it by chance, seldom"),
        Threshold("ids", 30, "ids", "fewer may agree by chance in a small vocabulary"),
        loss_calls.SHARE,
        loss_calls.CALLS,
    ),
    not_when="Heads that predict several tokens ahead, data that repeat themselves.",
    references=("https://huggingface.co/docs/transformers/model_doc/gpt2#transformers.GPT2LMHeadModel",),
)
