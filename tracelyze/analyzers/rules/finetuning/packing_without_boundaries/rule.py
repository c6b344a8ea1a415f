"""packing-without-boundaries: several samples share a row, and attention looks from one into those before it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.computed.data import loss_calls, texts
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.finetuning.packing_without_boundaries import packed_rows
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process

PACKING: Final = r"\bpacking\s*=(?!=)(?!\s*False)"
CUT: Final = " Rows are cut anywhere, so that some begin within an answer, without its prompt."
IN_MASK: Final = (
    " The attention_mask of the batches numbers the samples of a row, up to {most}, and attention does not heed these "
    "numbers. Where a model makes nothing else of a mask, all that is not 0 is seen."
)


def check(process: Process, limits: Limits) -> Outcome:
    """Rows with several end symbols, and weights of attention across them."""
    found: list[Finding] = []
    reasons: list[str] = []
    unreadable = cut = False
    asked = script_lines.only(process, "setting", PACKING) is not None
    for line, rows in texts.lines(process, limits):
        wrapped, most = asked and _cut_anywhere(rows, limits), texts.mask_numbers(process, rows)
        held = "answers" if wrapped or (most and all(row["parts"] == 0 for row in rows)) else "parts"
        packed = [row for row in rows if row[held] is not None and row[held] >= limits["parts"]]
        # Of a fused loss only what the model was given is known, and turns of a conversation look like samples.
        told = asked or most or line.function != loss_calls.OWN
        seen = [row for row in packed if told and not math.isnan(row["crosses"])]
        if held == "parts" and all(row["parts"] == 0 and (row["ignored"] or 0) > 0 for row in rows):
            cut = True
        elif len(packed) < limits["share"] * len(rows):
            looked_at = f"{plural(len(rows), 'batch')} looked at"
            anywhere = all(row["parts"] == 0 for row in rows)
            what = (
                "rows begin and end anywhere, as in pretraining"
                if anywhere
                else "not several whole samples in each row"
            )
            reasons.append(f"{looked_at}: {what}")
        elif len(seen) < limits["calls"]:
            unreadable = True
        elif max(row["crosses"] for row in seen) < limits["weight"]:
            reasons.append("attention gives no weight to other samples of a row")
        else:
            found.append(_finding(process, line, seen, limits, held, most))
    if found:
        return found
    if unreadable:
        return Skipped("rows hold several samples, but the attention of this model could not be read")
    if cut and not reasons:
        return Skipped(
            "no one id begins or ends every row, and targets are masked: rows may hold several samples, or parts"
        )
    return Passed(reasons[0]) if reasons else texts.NOT_SEEN


def _cut_anywhere(rows: list[Row], limits: Limits) -> bool:
    """Whether rows begin within an answer as often as they do where samples are joined and cut into equal pieces: as
    the share of targets that count. What is only too long, and cut at its end, begins with its prompt."""
    if any(row["parts"] or not row["ignored"] or row.get("answers_cut") is None for row in rows):
        return False
    return texts.mean(rows, "answers_cut") >= limits["cut"] * (1 - texts.mean(rows, "ignored"))


def _finding(process: Process, line: Line, rows: list[Row], limits: Limits, held: str, most: int | None) -> Finding:
    """`held`: the column that counts the samples of a row; `most`: the largest number of one in the mask."""
    parts = texts.mean(rows, held)
    crosses = max(row["crosses"] for row in rows)
    end = texts.constant(rows, "stop_id") if all(row["stop_same"] == 1 for row in rows) else None
    more = IN_MASK.format(most=most) if most else CUT if held == "answers" else ""
    weights = f"gives weights of up to {percent(crosses)}" if crosses < 1 else "is free to give any weight"
    remedy = Remedy(
        fix="Keep the samples in a row apart: use position ids that restart with each sample, and a block-diagonal "
        "mask or an attention kernel that takes sample lengths.",
        code=packed_rows.example(process, line.location, end, held == "answers" and not most, bool(most)),
        place=script_lines.only(process, "mask-given") if most else packed_rows.cut_out(process),
    )
    fault = LossFault(
        severity="warning" if most else "info",
        confidence="likely",
        remedy=remedy,
        title=f"Packed samples see each other: {number(parts)} in a row, and no mask between them",
        summary=(
            f"A row holds {number(parts)} samples on average, back to back, and attention {weights} to earlier samples "
            f"in the row.{more} Each sample is learned with unrelated context that it will not have at inference. "
            "Pretraining does this on purpose, and long contexts may benefit; short fine-tuning samples suffer."
        ),
        evidence=[
            Evidence("samples in a row", parts, "samples", *limits.against("parts")),
            Evidence("largest weight on another sample", crosses, "share", *limits.against("weight")),
        ],
        false_alarm="Pretraining, where documents are concatenated on purpose; turns of one conversation.",
    )
    return loss_calls.finding(process, line, rows, limits, RULE.id, fault)


RULE = Rule(
    id="packing-without-boundaries",
    family="fine-tuning",
    severity="info",
    title="Packed samples see each other",
    about="Packing several samples into a row saves padding. Without a mask between them, each sees the others as "
    "context.",
    check=check,
    settings=("packing",),
    verify="Record the run again: attention gives no weight to other samples.",
    absent="No loss of a language model was seen in the run.",
    needs=(("loss_calls.ids_next", "loss_calls.parts"),),
    thresholds=(
        Threshold("parts", 2, "samples", "derived: one sample in a row has nobody beside it"),
        Threshold("weight", 1e-6, "", "derived: what is masked has a weight of zero, or of exp(-1e4) at most"),
        Threshold("cut", 0.5, "times", "derived: 1 where rows begin anywhere, 0 where they begin as samples do"),
        texts.NEXT,
        loss_calls.SHARE,
        loss_calls.CALLS,
    ),
    not_when="Streams that are cut without regard to documents (pretraining), masks between the samples.",
    references=("https://huggingface.co/blog/packing-with-FA2",),
)
