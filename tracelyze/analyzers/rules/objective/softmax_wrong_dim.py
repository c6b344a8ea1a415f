"""softmax-wrong-dim: the softmax before the loss runs over the batch (or another dimension) instead of the classes, or
that of attention over the queries or the heads instead of the keys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import loss_calls, softmax_axes
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.script import line_edits
from tracelyze.analyzers.script.editing.remade import lines
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process

OVER_CLASSES = ("nll_loss", "cross_entropy")
_NAMED = re.compile(r"\bdim\s*=|softmax\w*\([^)]*\d", re.IGNORECASE)  # a call that says which dimension
ALONE = (
    "Samples then compete with each other instead of classes: the answer for one depends on which others are in its "
    "batch, and one that is alone there gets the same score for every class."
)
AMONG_OTHERS = (
    "Samples or positions then compete with each other instead of classes: the answer for one depends on the others."
)
ELEMENTWISE = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")


def check(process: Process, limits: Limits) -> Outcome:
    """Which dimension the softmax behind the loss ran over; else whether what it gave is normalised over classes. And
    which one attention's softmax ran over, against the one that its product with the values sums over."""

    def wrong(row: Row) -> bool | None:
        shape, maker = loss_calls.sizes(row["input_shape"]), row["made_by"]
        if not loss_calls.has_classes(row) or shape[0] == shape[1]:  # all pairs of a batch: both ways have a meaning
            return None
        if maker in (None, "", loss_calls.COMPILED):
            fine = row["function"] == "nll_loss" and loss_calls.normalised_logs(row, limits["error"])
            return False if fine else None
        if row["function"] in ELEMENTWISE:
            return maker == "Softmax" and row["made_dim"] == 0 and shape[0] > 1
        if maker == "Log" and row["made_dim"] is not None:
            return bool(row["made_dim"] != 1)
        if maker != "LogSoftmax":
            return False  # a softmax here is wrong over any dimension: other rules name it
        if row["made_dim"] is not None:
            return bool(row["made_dim"] != 1)
        if row["function"] != "nll_loss" or not row["made_whole"] or row["log_sum_error"] is None:
            return None
        return not loss_calls.normalised_logs(row, limits["error"])

    functions = (*OVER_CLASSES, *ELEMENTWISE)
    outcome = loss_calls.judge(
        process, functions, wrong, lambda line, bad: _finding(process, line, bad, limits), limits
    )
    if isinstance(outcome, Skipped):
        outcome = softmax_axes.written_out(process, RULE.id, limits) or outcome
    attention, graphs = softmax_axes.finding(process, RULE.id, limits)
    if attention is not None:
        return [*outcome, attention] if isinstance(outcome, list) else [attention]
    if graphs and isinstance(outcome, Skipped):
        return Passed(f"in {plural(graphs, 'graph')}, attention's softmax ran over what is summed over")
    return outcome


def _finding(process: Process, line: Line, bad: list[Row], limits: Limits) -> Finding:
    dim, shape = bad[0]["made_dim"], loss_calls.shown(bad[0]["input_shape"])
    strict = line.function in OVER_CLASSES
    name = "log_softmax" if strict and bad[0]["made_by"] != "Log" else "softmax"
    places = {None: "another dimension", 0: "the batch (dimension 0)"}
    over = places.get(dim, f"dimension {dim}")
    change = softmax_axes.line_in_model(process, bad[0]["made_by"] or "", line)
    flat = len(loss_calls.sizes(bad[0]["input_shape"])) == 2  # the classes are last then, also before a reshape
    own, moved = -1 if flat else 1, dim is None and softmax_axes.moves_dimensions(process)
    example = f"loss = F.nll_loss(F.log_softmax(logits, dim={own}), target)\n# or: F.cross_entropy(logits, target)"
    named = change is not None and _NAMED.search(change.source) is not None
    example = example if strict else f"probabilities = logits.softmax(dim={own})"
    edited = line_edits.softmax_dimension(process, change or line.location, own) if flat and not moved else None
    remedy = Remedy(
        fix="Name the dimension of the classes in the softmax"
        + "; without dim, nn.Softmax() takes dimension 0 of tensors with 1 or 3 dimensions" * (not named)
        + "."
        + " Before the loss, dimensions are moved: count in what the softmax is given." * moved,
        code=(softmax_axes.over_the_last(process, change) if moved else lines.softmax_along(process, change, own))
        or example,
        place=change,
        diff=edited,
    )
    fault = LossFault(
        title=f"The {name} before {line.function} runs over {over}, not over the classes",
        summary=(
            f"The input of {line.where}, shape {shape} with classes in dimension 1, was normalised over {over}. "
            + (ALONE if dim == 0 else AMONG_OTHERS)
        ),
        remedy=remedy,
        evidence=[
            Evidence("dimension of the softmax", dim),
            Evidence("dimension of the classes", 1, "", None, "of [batch, classes, ...]"),
            Evidence("shape of the input", shape),
            Evidence("largest |logsumexp| over the classes", bad[0]["log_sum_error"], "", *limits.against("error")),
        ],
        severity="critical" if strict else "warning",
        confidence="certain" if strict else "likely",
        false_alarm="A loss that normalises over the samples on purpose: clustering, ranking within a list.",
        lost=0.0,  # where a class is rare in the batch, its scores still rise
    )
    return loss_calls.finding(process, line, bad, limits, RULE.id, fault)


RULE = Rule(
    id="softmax-wrong-dim",
    family="loss",
    severity="critical",
    title="Softmax over the wrong dimension",
    about="A softmax over the batch dimension makes samples compete instead of classes; over the queries, positions.",
    check=check,
    verify="Record the run again: the softmax runs over the classes.",
    excluded=(
        "All pairs of a batch (contrastive losses): the two sizes differ.",
        "One-dimensional inputs are not counted.",
    ),
    absent="No loss over classes was seen: none of torch's was called, and no backward ran through a written-out one.",
    needs=(("loss_calls.made_by",), ("loss_graphs.products",), ("loss_graphs.picks",)),
    thresholds=(
        Threshold("error", 0.1, "nats", "log-probabilities have logsumexp 0, within 0.01 in bfloat16"),
        Threshold("looks", 2, "graphs", "a graph that was looked at once may be that of a first try"),
        loss_calls.SHARE,
        loss_calls.CALLS,
    ),
    not_when="Attention over its keys (transposed as well), slots and clusters, weights that are normalised again, "
    "tensors with one dimension, all pairs of a batch (contrastive losses).",
    references=("https://docs.pytorch.org/docs/stable/generated/torch.nn.LogSoftmax.html",),
)
