"""double-sigmoid: a loss that contains the sigmoid is given the output of one, or of a ReLU, or two stand before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed import squashed_twice
from tracelyze.analyzers.computed.data import loss_calls, softmax_axes
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.rule import Limits, Outcome, Rule, Threshold
from tracelyze.analyzers.script import line_edits
from tracelyze.analyzers.script.loss import scores_elsewhere, squashed_names
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.analyzers.script.settings import chosen_by_argument
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

SQUASHING = ("Sigmoid", "Hardsigmoid", "Softmax")

PROBABILITIES = "Apply the {first} only where probabilities are shown or compared."


def check(process: Process, limits: Limits) -> Outcome:
    """The input comes from a sigmoid or ReLU; where that is not known, all of many inputs fill the range 0 to 1."""

    functions = ("binary_cross_entropy_with_logits", "binary_cross_entropy", squashed_twice.LOG_LOSS)
    full = {(line.site, line.training) for line in loss_calls.lines(process, functions[:1]) if _fills(line, limits)}

    def wrong(row: Row) -> bool | None:
        if row["function"] != functions[0]:
            return squashed_twice.sigmoids(row)
        if row["lowest"] is None:
            return None
        if row["made_by"] in SQUASHING or squashed_twice.bounded(row):
            return True
        if row["made_by"] not in (None, "", loss_calls.COMPILED) or row["lowest"] < 0 or row["highest"] > 1:
            return False
        return True if (row["site"], bool(row["training"])) in full else None

    return loss_calls.judge(process, functions, wrong, lambda line, bad: _finding(process, line, bad, limits), limits)


def _fills(line: Line, limits: Limits) -> bool:
    """Scores that stay above 0 and below 1 for long and still come close to both would be a rare coincidence."""
    lowest = [row["lowest"] for row in line.rows if row["lowest"] is not None]
    highest = [row["highest"] for row in line.rows if row["highest"] is not None]
    enough = len(lowest) >= limits["looks"] and line.rows[-1]["step"] - line.rows[0]["step"] >= limits["steps"]
    near = limits["near"]
    return bool(enough and 0 <= min(lowest) <= near and 1 - near <= max(highest) <= 1)


def _finding(process: Process, line: Line, bad: list[Row], limits: Limits) -> Finding:
    if line.function != "binary_cross_entropy_with_logits":
        return squashed_twice.of_sigmoids(process, line, bad, limits, RULE.id)
    if bad[0]["made_by"] in squashed_twice.BOUNDED:
        return squashed_twice.of_bounded(process, line, bad, limits, RULE.id)
    lowest, highest = min(row["lowest"] for row in bad), max(row["highest"] for row in bad)
    seen = bad[0]["made_by"] in SQUASHING
    made_by = bad[0]["made_by"] if seen or line.training else _made_in_training(process, line)
    first = made_by.lower() if made_by in SQUASHING else "sigmoid"
    squashed = softmax_axes.line_of_sigmoid(process, made_by) if made_by in SQUASHING else None
    of_loss = squashed_names.given_scores(process, line.location, first) if seen else None
    of_model = None if of_loss or line_edits.of_a_part(line.location) else squashed
    kind = made_by if first == "softmax" else "Sigmoid"
    chosen = chosen_by_argument.layer(process, of_model, kind, kind.lower())
    of_model_diff = chosen.diff if chosen else line_edits.without_activation(process, of_model, kind)
    elsewhere = PROBABILITIES.format(first=first)
    validated = loss_calls.in_evaluation(process, line.function)
    elsewhere = scores_elsewhere.said(process, of_model, first, validated) if of_model_diff else elsewhere
    name = scores_elsewhere.named(of_model, first) if of_model_diff else ""
    comes = f"comes straight out of a {bad[0]['made_by'].lower()}" if seen else "never left the range from 0 to 1"
    remedy = Remedy(
        fix=(f"{chosen.said} Pass" if chosen else f"Remove the {'first ' * (first == 'sigmoid')}{first}, and pass")
        + f" the scores before it{name} to the loss. {elsewhere}",
        code=f"logits = model(x)  # the model ends without a {first}\n"
        "loss = F.binary_cross_entropy_with_logits(logits, target)",
        place=(chosen and chosen.place) or squashed,
        diff=of_loss or of_model_diff,
    )
    fault = LossFault(
        title=f"The sigmoid is applied twice: {_first(squashed)} and in binary_cross_entropy_with_logits"
        if first == "sigmoid"
        else f"A {first} {_first(squashed)}, and a sigmoid in binary_cross_entropy_with_logits",
        summary=(
            f"The input of {line.where} {comes}, with values from {number(lowest)} to {number(highest)}. "
            "binary_cross_entropy_with_logits expects raw scores (logits) and applies the sigmoid itself. After it "
            "every prediction lies between 0.5 and 0.73: however well the model separates the classes, the loss of a "
            "negative cannot fall below 0.69, nor that of a positive below 0.31 (without weights)."
        ),
        remedy=remedy,
        evidence=[
            Evidence("made by", bad[0]["made_by"] or "unknown"),
            Evidence("smallest value of the input", lowest, "", 0.0, "scores are negative where the answer is no"),
            Evidence("largest value of the input", highest, "", 1.0, "a sigmoid gives no more", role="most"),
        ],
        false_alarm="Scores that are meant to lie between 0 and 1.",
        confidence="certain" if seen else "likely",
        lost=0.0,  # scores of the right class still rise, only more slowly
    )
    return loss_calls.finding(process, line, bad, limits, RULE.id, fault)


def _made_in_training(process: Process, evaluated: Line) -> str:
    """The squashing that makes the input of the same loss in training: without autograd, as in validation, nothing
    tells what made it."""
    same = [line for line in loss_calls.lines(process, (evaluated.function,)) if line.training]
    made = {row["made_by"] for line in same for row in line.rows}
    return str(made.pop()) if len(made) == 1 else ""


def _first(place: Location | None) -> str:
    """Where the first one stands."""
    return "before the loss" if place is None else f"at line {place.line}"


RULE = Rule(
    id="double-sigmoid",
    family="loss",
    severity="critical",
    title="A sigmoid of a sigmoid in the loss",
    about="binary_cross_entropy_with_logits includes the sigmoid. With a second one, or a ReLU before it, no negative "
    "gets below a loss of 0.69.",
    check=check,
    verify="Record the run again: the loss gets scores below 0 and above 1, and falls below 0.69 for negatives.",
    excluded=("Scores that happen to lie between 0 and 1: the input comes out of a sigmoid, softmax or ReLU.",),
    absent="The run has no binary cross-entropy.",
    needs=(("loss_calls.function",),),
    thresholds=(
        Threshold("looks", 20, "calls", "scores may lie between 0 and 1 in the first steps"),
        Threshold("steps", 100, "steps", "scores move away from where they were initialised within some ten steps"),
        Threshold("near", 0.1, "", "a sigmoid that separates classes comes close to 0 and to 1; a constant does not"),
        loss_calls.SHARE,
        loss_calls.CALLS,
    ),
    not_when="Scores that happen to lie between 0 and 1 in the first steps; targets that are probabilities.",
    references=("https://docs.pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html",),
)
