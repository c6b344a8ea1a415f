"""nll-of-probabilities: a loss that expects log-probabilities is given probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.computed import squashed_twice
from tracelyze.analyzers.computed.data import loss_calls, softmax_axes
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.rule import Limits, Outcome, Rule
from tracelyze.analyzers.script import line_edits
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process

EFFECT: Final = {
    "nll_loss": "nll_loss returns minus the value of the right class. On probabilities that is a number between -1 and "
    "0, not a log-likelihood: confident mistakes are hardly penalised, and gradients vanish where the network is "
    "wrong.",
    "kl_div": "kl_div subtracts its input from the logarithm of the target. On probabilities the result is not a "
    "divergence, and its minimum is not where the two distributions agree.",
}
EXAMPLE: Final = {
    "nll_loss": "log_probabilities = F.log_softmax(scores, dim=1)  # in place of the softmax\n"
    "loss = F.nll_loss(log_probabilities, target)\n"
    "# or, without any softmax: loss = F.cross_entropy(scores, target)",
    "kl_div": "log_probabilities = F.log_softmax(scores, dim=-1)  # in place of the softmax, of all that it takes\n"
    'loss = F.kl_div(log_probabilities, target, reduction="batchmean")',
}


def check(process: Process, limits: Limits) -> Outcome:
    """The input of nll_loss or kl_div comes from a softmax, or its rows are probabilities."""

    def wrong(row: Row) -> bool | None:
        if not loss_calls.has_classes(row) or row["lowest"] is None:
            return None
        return row["made_by"] == "Softmax" or loss_calls.probabilities(row, limits["rounding"])

    return loss_calls.judge(
        process, tuple(EFFECT), wrong, lambda line, bad: _finding(process, line, bad, limits), limits
    )


def _finding(process: Process, line: Line, bad: list[Row], limits: Limits) -> Finding:
    mixed = squashed_twice.mixed(process, line, bad)
    values = [row["value"] for row in bad if row["value"] is not None]
    lowest, highest = min(row["lowest"] for row in bad), max(row["highest"] for row in bad)
    fault = LossFault(
        title=f"{line.function} gets probabilities, but it expects log-probabilities",
        summary=(
            f"The input of {line.where} has rows from {number(lowest)} to {number(highest)} that "
            f"{'' if mixed else 'come from a softmax or '}sum to 1. {EFFECT[line.function]}"
        ),
        remedy=_of_mixed(process, line) if mixed else _of_softmax(process, line),
        evidence=[
            Evidence("made by", bad[0]["made_by"] or "unknown"),
            Evidence(
                "smallest value of the input",
                lowest,
                "",
                0.0,
                "logarithms of probabilities are not positive, probabilities not negative",
            ),
            Evidence(
                "largest distance of a row's sum from 1",
                max(row["sum_error"] for row in bad),
                "",
                *limits.against("rounding"),
                role="most",
            ),
            Evidence("loss, first and last", f"{number(values[0])}, {number(values[-1])}" if values else None),
        ],
        false_alarm="A loss that maximises the probability of the right class itself, on purpose.",
        lost=0.0,  # scores of the right class still rise, only more slowly
    )
    return loss_calls.finding(process, line, bad, limits, RULE.id, fault)


def _of_mixed(process: Process, line: Line) -> Remedy:
    """Probabilities that were added and multiplied: they need the logarithm itself."""
    edit = line_edits.logarithm_of_input(process, line.location, line.function)
    return Remedy(
        fix="Take the logarithm of the loss's input, clamped away from zero. Leave an earlier softmax as it is and "
        "add no other: what is added and multiplied in between must stay probabilities.",
        code=edit.added[0].strip() if edit else f"loss = F.{line.function}(given.clamp_min(1e-12).log(), target)",
        diff=edit,
    )


def _of_softmax(process: Process, line: Line) -> Remedy:
    """The softmax in front of the loss, in the model where it can be named."""
    change = softmax_axes.line_in_model(process, "Softmax", line)
    named = change is not None and line_edits.of_a_part(line.location)
    return Remedy(
        fix="Change the softmax in front of the loss to log_softmax, and leave the loss as it is."
        + (" Or remove the softmax and use cross_entropy, which includes both." * (line.function == "nll_loss")),
        code=EXAMPLE[line.function],
        place=change,
        diff=None if named else line_edits.log_softmax(process, change or line.location),
    )


RULE = Rule(
    id="nll-of-probabilities",
    family="loss",
    severity="critical",
    title="Probabilities where log-probabilities belong",
    about="nll_loss and kl_div expect log-probabilities. They also run on probabilities, but then compute something "
    "else.",
    check=check,
    verify="Record the run again: the input of the loss is zero or below.",
    excluded=("Log-probabilities: the values are not negative and sum to 1.",),
    absent="The run calls neither nll_loss nor kl_div.",
    needs=(("loss_calls.function",),),
    thresholds=(loss_calls.ROUNDING, loss_calls.SHARE, loss_calls.CALLS),
    not_when="Log-probabilities; Gaussian and flow likelihoods, which may be negative.",
    references=("https://docs.pytorch.org/docs/stable/generated/torch.nn.NLLLoss.html",),
)
