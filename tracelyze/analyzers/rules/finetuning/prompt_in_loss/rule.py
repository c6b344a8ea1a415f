"""prompt-in-loss: every row begins with the same template, and the template's tokens count in the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import loss_calls, texts
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.analyzers.rules.finetuning.prompt_in_loss import collators, masked_prompts, one_text
from tracelyze.analyzers.script.candidates import copied_labels
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process

FIX = "To train on answers only, set the labels of prompt positions to -100."
FIX_CODE = """\
for row, length in zip(labels, prompt_lengths):  # below the line that makes the labels of a batch
    row[:length] = -100  # each row's own prompt, of rows that are filled up at their end
# where labels are those of one row: labels[:prompt_length] = -100
# with TRL: columns prompt and completion, no formatting_func, and completion_only_loss=True"""

ON_PURPOSE = " Some train on whole conversations on purpose."


def check(process: Process, limits: Limits) -> Outcome:
    """Targets within what all rows begin with, or before the one id that parts every row in two."""
    found: list[Finding] = []
    looked = 0
    for line, rows in texts.lines(process, limits):
        looked += len(rows)
        same = [row for row in rows if row["prefix"] >= limits["template"]]
        template = texts.mean(rows, "prefix_share") if len(same) >= limits["share"] * len(rows) else 0.0
        parted = (texts.constant(rows, "separator") or -1) >= 0
        before = texts.mean(rows, "separator_share") if parted else 0.0
        if max(template, before) >= limits["taken"]:
            found.append(_finding(process, line, rows, template, before, limits))
    if found:
        return found
    if not looked:
        return texts.NOT_SEEN
    return Passed(f"{plural(looked, 'batch')} looked at: no template or prompt takes a part of the loss")


def _finding(process: Process, line: Line, rows: list[Row], template: float, before: float, limits: Limits) -> Finding:
    share, length = max(template, before), int(min(row["prefix"] for row in rows))
    by_template = template >= before
    parting = f"id {rows[0]['separator']:.0f}"
    title = f"The prompt counts in the loss: at least {percent(share)} of the targets lie before the answer"
    what = (
        f"All rows begin with the same {length} ids, and the targets there count like all others: {percent(share)} of "
        f"those of {line.function}, and the rest of each prompt, where it counts, comes on top. A template is learned "
        "within a few steps; from then on these targets make the loss look better than the answers are, and"
    )
    if not by_template:
        title = f"{percent(share)} of the targets stand before {parting}: if it ends the prompts, they are learned, too"
        what = (
            f"Every row holds {parting} once. In plain text, where that is a word or a full stop, nothing is wrong. "
            f"Where it ends a prompt, as the marker of an answer does, {percent(share)} of the targets of "
            f"{line.function} are prompt: the loss says less of the answers, and these targets"
        )
    place, fix, code, in_vain = copied_labels.assigned(process), FIX, FIX_CODE, ""
    if (made_anew := collators.line(process)) is not None:
        place, (fix, code) = made_anew, collators.remedy(process, made_anew)
    elif by_template and (masking := masked_prompts.line(process)) is not None:
        place, (in_vain, fix, code) = masking[0], masked_prompts.remedy(process, *masking)
    elif place is None and (given := copied_labels.copied(process)) is not None:
        entry, place = copied_labels.entry(process, given), given
        code = copied_labels.without_prompt(entry) if entry is not None else FIX_CODE
    elif place is None and (joined := one_text.line(process)) is not None:
        place, (fix, code) = joined, one_text.remedy(process, joined)
    fault = LossFault(
        severity="info",
        confidence="likely" if by_template else "possible",  # an id that stands once in each row may be a word
        title=title,
        summary=f"{what} take their share of each step.{in_vain or ON_PURPOSE}",
        remedy=Remedy(fix, code, place),
        evidence=[
            Evidence("targets before the answer", share, "share", *limits.against("taken")),
            Evidence("ids that all rows begin with", length, "ids"),
        ],
        false_alarm="Plain text, continued pretraining, conversations learned as a whole, templates on purpose.",
    )
    return loss_calls.finding(process, line, rows, limits, RULE.id, fault)


RULE = Rule(
    id="prompt-in-loss",
    family="fine-tuning",
    severity="info",
    title="The prompt counts in the loss",
    about="Instruction data repeat a template in every row. If it counts, the loss looks better than it is on the "
    "answers.",
    check=check,
    verify="Record the run again: the targets of the prompt no longer count.",
    absent="No loss of a language model was seen in the run.",
    needs=(("loss_calls.ids_next", "loss_calls.prefix_share"),),
    thresholds=(
        Threshold("template", 4, "ids", "one begin symbol and a word or two may be common to all texts"),
        Threshold("taken", 0.1, "share", "below a tenth neither the loss nor the steps are changed by much"),
        texts.NEXT,
        loss_calls.SHARE,
        loss_calls.CALLS,
    ),
    not_when="Continued pretraining, prompts whose labels are ignored.",
    references=("https://arxiv.org/abs/2405.14394",),
)
