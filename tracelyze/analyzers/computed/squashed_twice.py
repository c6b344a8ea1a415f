"""A sigmoid of a sigmoid, or a softmax of a softmax, where the loss is given probabilities or is written out; a sigmoid
of scores that cannot be negative."""

from __future__ import annotations

from math import e, log
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import loss_calls, softmax_axes
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.script import line_edits
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Evidence
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Finding

BOUNDED = {"Relu": "ReLU", "Softplus": "Softplus"}  # operations whose results are never below 0, and their modules
LOG_LOSS = "the written-out log loss"  # of the script: the collector's name of it
OF_SIGMOID = ("Sigmoid", "LogSigmoid")
OF_SOFTMAX = ("Softmax", "LogSoftmax", "Logsumexp", "Log")
LEAST = 1 / (1 + e)  # the least that 1 - sigmoid(p) can be for a probability p; its negative logarithm is 0.31 at best


def sigmoids(row: Row) -> bool | None:
    """Whether this loss is made of a sigmoid of probabilities. None where the row does not say."""
    if row.get("made_from") is None:
        return None
    return row["made_by"] in OF_SIGMOID and row["made_from"] in ("Sigmoid", "Softmax")


def softmaxes(row: Row) -> bool | None:
    """Whether this loss is made of a softmax of probabilities."""
    if row.get("made_from") is None:
        return None
    return row["made_by"] in OF_SOFTMAX and row["made_from"] == "Softmax"


def mixed(process: Process, line: Line, bad: list[Row]) -> bool:
    """Whether what made the probabilities was seen, and is no softmax: a mixture, a sum, a quotient of two. Without
    autograd nothing shows that; where the training computes this loss at one line, the same model made them there."""
    if not line.training:
        trained = [one for one in loss_calls.lines(process, (line.function,)) if one.training]
        bad = trained[0].rows if len(trained) == 1 else bad
    return all(row["made_by"] not in (None, "", "Softmax", "CompiledFunction") for row in bad)


def lowest_cross_entropy(classes: int) -> float:
    """Cross-entropy of a right answer given with probability 1, after another softmax."""
    return log(e + classes - 1) - 1.0


def of_sigmoids(process: Process, line: Line, bad: list[Row], limits: Limits, rule: str) -> Finding:
    """The finding for a sigmoid of a sigmoid, before a loss that expects probabilities or within a written-out one."""
    first = str(bad[0]["made_from"]).lower()
    written = line.function == LOG_LOSS
    place = softmax_axes.line_of_sigmoid(process, str(bad[0]["made_from"]))
    own = line.location if line.location is not None and "sigmoid(" in line.location.source else None
    loss = "the loss that the script writes out" if written else line.function
    inside = written and bad[0]["made_by"] == "LogSigmoid"
    does = (
        "contains a sigmoid, and the scores that it is given come" if inside else "is given a sigmoid whose input comes"
    )
    remedy = Remedy(
        fix="Take both out: pass the scores before the first one to binary_cross_entropy_with_logits, which contains "
        "the sigmoid. Apply the sigmoid only where probabilities are shown or compared.",
        code="logits = model(x)  # the model ends without a sigmoid\n"
        "loss = F.binary_cross_entropy_with_logits(logits, target)",
        place=own or place,
    )
    fault = LossFault(
        title=f"The sigmoid is applied twice before {'the loss' if written else loss}",
        summary=(
            f"In {line.where}, {loss} {does} straight out of a {first}. After the second one every answer lies between "
            "0.5 and 0.73: however well the model tells them apart, the loss of negatives cannot fall below 0.69, nor "
            "that of positives below 0.31, and no answer is ever below one half."
        ),
        remedy=remedy,
        evidence=[
            Evidence("lowest loss of a negative that can be reached", log(2), ""),
            Evidence("lowest loss of a positive that can be reached", -log(1 - LEAST), ""),
            Evidence("made by", f"{bad[0]['made_by']} of a {bad[0]['made_from']}"),
        ],
        false_alarm="A gate between 0.5 and 0.73 that is meant to be one.",
        lost=0.0,  # scores of the right class still rise, only more slowly
    )
    return loss_calls.finding(process, line, bad, limits, rule, fault)


def bounded(row: Row) -> bool:
    """Whether the scores of a sigmoid are never below 0 though some answers are no: targets of one kind do not vary."""
    return row["made_by"] in BOUNDED and row["lowest"] >= 0 and (row.get("target_varies") or 0.0) > 0


def of_bounded(process: Process, line: Line, bad: list[Row], limits: Limits, rule: str) -> Finding:
    """The finding for scores that a ReLU, or its like, has kept from being negative."""
    kind = BOUNDED[bad[0]["made_by"]]
    lowest, highest = min(row["lowest"] for row in bad), max(row["highest"] for row in bad)
    place = softmax_axes.line_of_last(process, kind)
    diff = line_edits.without_activation(process, place, kind)
    stops = " Where the ReLU gives 0, no gradient passes." * (kind == "ReLU")
    fault = LossFault(
        title=f"A {kind} stands before binary_cross_entropy_with_logits: no prediction is below 0.5",
        summary=(
            f"The input of {line.where} comes straight out of a {kind}, with values from {number(lowest)} to "
            f"{number(highest)}. binary_cross_entropy_with_logits expects raw scores (logits), which are negative "
            "where the answer is no. As they never are, every prediction is 0.5 or more, and the loss of a negative "
            f"cannot fall below 0.69 (without weights).{stops}"
        ),
        remedy=Remedy(
            fix=f"Remove that {kind}, and pass the scores before it to the loss.",
            code=f"logits = model(x)  # the model ends without a {kind}\n"
            "loss = F.binary_cross_entropy_with_logits(logits, target)",
            place=place,
            diff=diff,
        ),
        evidence=[
            Evidence("made by", bad[0]["made_by"]),
            Evidence("smallest value of the input", lowest, "", 0.0, "scores are negative where the answer is no"),
            Evidence("lowest loss of a negative that can be reached", log(2), ""),
        ],
        false_alarm="Scores of a sigmoid that are meant to give no less than one half.",
        lost=0.0,  # positives are still told from negatives, by how far above one half they are
    )
    return loss_calls.finding(process, line, bad, limits, rule, fault)


def of_softmaxes(process: Process, line: Line, bad: list[Row], limits: Limits, rule: str) -> Finding:
    """The finding for a softmax of a softmax, before nll_loss or within a loss that the script writes out."""
    sizes = loss_calls.sizes(bad[0]["input_shape"])
    classes = sizes[1] if len(sizes) == 2 else 0
    loss = "the loss that the script writes out" if line.function == LOG_LOSS else line.function
    floor = lowest_cross_entropy(classes)
    reach = f"With {classes} classes it cannot fall below {number(floor)} even if every answer is right, and i" * (
        classes > 1
    )
    remedy = Remedy(
        fix="Take the first softmax out: pass the scores before it to cross_entropy, which contains the softmax. "
        "Apply it by hand only where probabilities are shown or compared.",
        code="logits = model(x)  # the model ends without a softmax\nloss = F.cross_entropy(logits, target)",
        place=softmax_axes.line_in_model(process, "Softmax", line),
    )
    fault = LossFault(
        title="Softmax is applied twice: what the loss takes the logarithm of was one already",
        summary=(
            f"In {line.where}, {loss} is given a softmax whose input comes straight out of another softmax. "
            f"{reach or 'I'}ts gradients are small: the second softmax makes all answers nearly alike."
        ),
        remedy=remedy,
        evidence=[
            *([Evidence("lowest loss that can be reached", floor, "")] if classes > 1 else []),
            Evidence("made by", f"{bad[0]['made_by']} of a {bad[0]['made_from']}"),
        ],
        false_alarm="A model that is meant to give scores between 0 and 1 with a second softmax on top.",
        lost=0.0,
    )
    return loss_calls.finding(process, line, bad, limits, rule, fault)
