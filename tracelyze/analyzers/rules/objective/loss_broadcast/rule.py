"""loss-broadcast: prediction [B, 1] against target [B] compares every sample with every other: [B, B] differences."""

from __future__ import annotations

from itertools import zip_longest
from math import prod
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.rule import Limits, Outcome, Rule
from tracelyze.analyzers.rules.objective.loss_broadcast import crossed_products, extra_dimension
from tracelyze.diagnosis import Evidence

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Finding

WARNS = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")  # in torch, of sizes that differ
ELEMENTWISE = (
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "poisson_nll_loss", "gaussian_nll_loss",
    "soft_margin_loss", "hinge_embedding_loss", loss_calls.WRITTEN_OUT,
)  # fmt: skip


def check(process: Process, limits: Limits) -> Outcome:
    """Both arguments of an elementwise loss are blown up to a common, larger shape."""

    def finding(line: Line, bad: list[Row]) -> Finding:
        return _finding(process, line, bad, limits)

    return loss_calls.judge(process, ELEMENTWISE, _crossed, finding, limits)


def _crossed(row: Row) -> bool | None:
    """Whether prediction and target have the same sizes but for ones, in another number of dimensions, so that each is
    repeated along the other."""
    given, target = loss_calls.sizes(row["input_shape"]), loss_calls.sizes(row["target_shape"])
    if row["function"] == loss_calls.WRITTEN_OUT and not row["meet_in"]:
        return None  # an older recording: whether both are compared or multiplied is not known
    if prod(given) == 1 or prod(target) == 1:
        return False if prod(given) != prod(target) else None  # a scalar target; or a batch of one, which shows nothing
    if len(given) == len(target) or [s for s in given if s > 1] != [s for s in target if s > 1]:
        return False
    return prod(_together(row)) > max(prod(given), prod(target))


def _together(row: Row) -> list[int]:
    """The shape that both are broadcast to."""
    given, target = loss_calls.sizes(row["input_shape"]), loss_calls.sizes(row["target_shape"])
    pairs = zip_longest(reversed(given), reversed(target), fillvalue=1)
    return [max(pair) for pair in pairs][::-1]


def _finding(process: Process, line: Line, bad: list[Row], limits: Limits) -> Finding:
    row = bad[0]
    multiplied = row["meet_in"] == crossed_products.PRODUCT
    fault = crossed_products.fault(process, line, row, _together(row)) if multiplied else _fault(process, line, row)
    return loss_calls.finding(process, line, bad, limits, RULE.id, fault)


def _fault(process: Process, line: Line, row: Row) -> LossFault:
    """What a finding says of differences between every prediction and every target."""
    given, target = loss_calls.shown(row["input_shape"]), loss_calls.shown(row["target_shape"])
    product, count = _together(row), prod(loss_calls.sizes(row["input_shape"]))
    one_number_each = sum(size > 1 for size in loss_calls.sizes(row["input_shape"])) == 1
    kept = row["reduction"] == "none"
    subject = "The loss" if line.function == loss_calls.WRITTEN_OUT else line.function
    return LossFault(
        title=f"{subject} compares {given} with {target}: "
        + ("every prediction meets every target" if one_number_each else "samples meet the targets of others"),
        summary=(
            f"In {line.where} the prediction has shape {given} and the target {target}. PyTorch broadcasts both to "
            f"{product}: {prod(product):,} differences instead of {count:,}, of which {count:,} compare a prediction "
            f"with its own target. The network learns {_learned(line.function)}"
            f"{'' if one_number_each else ' at each place'}, "
            "whatever the input." + " torch warns of it once, where warnings are shown." * (line.function in WARNS)
        ),
        remedy=extra_dimension.remedy(process, line, row),
        repeated=True,
        evidence=[
            Evidence("shape of the prediction", given),
            Evidence("shape of the target", target),
            Evidence("differences computed", prod(product), "", count, "one per prediction"),
        ],
        severity="warning" if kept else "critical",
        confidence="likely" if kept else "certain",
        false_alarm="Differences of all pairs on purpose: then write [:, None] into both, which says so.",
    )


def _learned(loss: str) -> str:
    """The constant at which such a loss is least over all targets."""
    if loss in ("mse_loss", "poisson_nll_loss", "gaussian_nll_loss"):
        return "to predict the mean of all targets"
    if loss in ("l1_loss", "smooth_l1_loss", "huber_loss"):
        return f"to predict {'the median' if loss == 'l1_loss' else 'a middle value'} of all targets"
    return "the one answer that suits all targets together"


RULE = Rule(
    id="loss-broadcast",
    family="loss",
    severity="critical",
    title="Prediction and target are broadcast against each other",
    about="Shapes [B, 1] and [B] raise no error: they give [B, B] differences, and the network learns a constant; or "
    "[B, B] products, and each sample is weighted with the factors of all.",
    check=check,
    verify="Record the run again: both sides have the same shape.",
    excluded=(
        "All pairs on purpose: the shapes have different numbers of dimensions.",
        "A target with a single value: it has as many as the prediction.",
    ),
    absent="No call of an elementwise loss was seen.",
    needs=(("loss_calls.input_shape", "loss_calls.target_shape"),),
    thresholds=(loss_calls.SHARE, loss_calls.CALLS),
    not_when="Equal shapes, targets with a single value, one side repeated, pairs written out with the same number of "
    "dimensions.",
    references=("https://docs.pytorch.org/docs/stable/notes/broadcasting.html",),
)
