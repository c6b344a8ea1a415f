"""double-softmax: cross-entropy is given probabilities, and takes a softmax of them once more."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed import squashed_twice
from tracelyze.analyzers.computed.data import loss_calls, softmax_axes
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.rule import Limits, Outcome, Rule
from tracelyze.analyzers.script import edits, line_edits
from tracelyze.analyzers.script.loss import scores_elsewhere, squashed_names
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.analyzers.script.settings import chosen_by_argument
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process

MIXED = (
    "Give the loss the logarithm of these probabilities, kept away from zero: its log-softmax leaves log-probabilities "
    "as they are. Leave each softmax in the model as it is: no layer has the scores of a mixture of several."
)
MIXED_CODE = "loss = F.cross_entropy(probabilities.clamp_min(1e-12).log(), target)"


def check(process: Process, limits: Limits) -> Outcome:
    """The input of cross_entropy comes from a softmax, or its rows are probabilities."""

    def wrong(row: Row) -> bool | None:
        if row["function"] != "cross_entropy":
            return squashed_twice.softmaxes(row)
        if not loss_calls.has_classes(row) or row["lowest"] is None:
            return None
        return row["made_by"] == "Softmax" or loss_calls.probabilities(row, limits["rounding"])

    functions: tuple[str, ...] = ("cross_entropy", "nll_loss", squashed_twice.LOG_LOSS)
    called = [line for line in loss_calls.lines(process, functions[:1]) if line.training]
    if any(wrong(row) for line in called for row in line.rows):
        functions = functions[:2]  # with smoothed labels its graph is that of a loss which a script writes out
    return loss_calls.judge(process, functions, wrong, lambda line, bad: _finding(process, line, bad, limits), limits)


def _finding(process: Process, line: Line, bad: list[Row], limits: Limits) -> Finding:
    if line.function != "cross_entropy":
        return squashed_twice.of_softmaxes(process, line, bad, limits, RULE.id)
    classes = loss_calls.sizes(bad[0]["input_shape"])[1]
    lowest, highest = min(row["lowest"] for row in bad), max(row["highest"] for row in bad)
    floor = squashed_twice.lowest_cross_entropy(classes)
    seen = "comes straight out of a softmax" if bad[0]["made_by"] == "Softmax" else "has rows that sum to 1"
    mixed, each = squashed_twice.mixed(process, line, bad), " a target" * (bad[0]["reduction"] != "mean")
    change = None if mixed else softmax_axes.line_in_model(process, "Softmax", line)
    of_model = None if line_edits.of_a_part(line.location) else change
    chosen = chosen_by_argument.layer(process, change, "Softmax", "softmax")
    diff = (
        chosen.diff
        if chosen
        else line_edits.without_activation(process, of_model, "Softmax")
        if change
        else line_edits.logarithm_of_input(process, line.location, "cross_entropy")
        if mixed
        else edits.without_softmax(process, line.location)
        or squashed_names.given_scores(process, line.location, "softmax")
    )
    elsewhere = "Apply the softmax only where probabilities are shown or compared."
    validated = loss_calls.in_evaluation(process, line.function)
    elsewhere = scores_elsewhere.said(process, change, "softmax", validated) if change and diff else elsewhere
    name = scores_elsewhere.named(change, "softmax") if diff else ""
    where = "" if diff else "Remove the softmax from the input of the loss, in the model or in front of the loss. "
    where = f"{chosen.said} " if chosen else where
    remedy = Remedy(
        fix=MIXED if mixed else f"{where}Pass the scores before the softmax{name} to the loss. {elsewhere}",
        code=MIXED_CODE if mixed else _whole_model(line, change is not None and diff is not None),
        place=(chosen and chosen.place) or change,
        diff=diff,
    )
    fault = LossFault(
        title="Softmax is applied twice: cross_entropy gets probabilities instead of scores",
        summary=(
            f"The input of {line.where} {seen}, with values from {number(lowest)} to {number(highest)}. cross_entropy "
            "applies log-softmax itself and expects raw scores (logits). "
            f"With {classes} classes this loss cannot fall below {number(floor)}{each} even if every answer is "
            "right, and its gradients are small."
        ),
        remedy=remedy,
        evidence=[
            Evidence("lowest loss that can be reached", floor, ""),
            Evidence("made by", bad[0]["made_by"] or "unknown"),
            Evidence("smallest value", lowest, "", 0.0, "probabilities are not negative, scores are"),
            Evidence(
                "largest distance of a row's sum from 1",
                max(row["sum_error"] for row in bad),
                "",
                *limits.against("rounding"),
                role="most",
            ),
        ],
        false_alarm="A model that is meant to produce scores between 0 and 1 with a second softmax on top.",
        lost=0.0,  # scores of the right class still rise, only more slowly
        repeated=True,
    )
    return loss_calls.finding(process, line, bad, limits, RULE.id, fault)


def _whole_model(line: Line, ends_in_softmax: bool) -> str:
    """An example. What the model returns is the scores themselves where its softmax is the last that it does."""
    if ends_in_softmax or (line.location and re.search(r"cross_entropy\(\s*[\w.]+\([\w., ]*\),", line.location.source)):
        return "logits = model(x)  # the model ends without a softmax\nloss = F.cross_entropy(logits, target)"
    return "# logits: what the last linear layer gives, before any softmax\nloss = F.cross_entropy(logits, target)"


RULE = Rule(
    id="double-softmax",
    family="loss",
    severity="critical",
    title="Softmax before cross-entropy",
    about="cross_entropy includes the softmax. On top of another softmax it cannot reach a low loss and hardly learns.",
    check=check,
    verify="Record the run again: the loss falls below its old floor.",
    excluded=(
        "Scores that happen to be small: they come out of a softmax, or all rows sum to 1.",
        "Log-probabilities: they are not negative here.",
    ),
    absent="The run has no cross-entropy.",
    needs=(("loss_calls.function",),),
    thresholds=(loss_calls.ROUNDING, loss_calls.SHARE, loss_calls.CALLS),
    not_when="Scores that happen to be small; targets that are probabilities; log-probabilities as the input, which a "
    "second log-softmax leaves as they are.",
    references=("https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",),
)
