"""Evaluation losses that are sums over their batches, as the means that the training loss is made of.

Many scripts add up `F.nll_loss(output, target, reduction="sum")` over a validation set, and divide by its size at the
end. What the loss function returned is too large by the size of a batch to stand beside the loss of training; a squared
error of images, say, by all the pixels of the batch, over which the mean of training goes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tracelyze import schema
from tracelyze.analyzers.recorded.table import Floats, Mask, Table

PER_SAMPLE: Final = "validation: mean per sample"
PER_VALUE: Final = "validation: mean per value, as in training"
_OF_EACH_VALUE: Final = (
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "kl_div", "poisson_nll_loss", "gaussian_nll_loss", "soft_margin_loss",
)  # fmt: skip
"""Loss functions whose mean goes over all values of a sample."""


def averaged(tables: Mapping[str, Table]) -> tuple[dict[str, Table], str]:
    """The tables with a mean loss for each evaluation, where losses are sums there and means in training; and what the
    evaluated losses are then, to stand beside them, else empty."""
    whole = dict(tables)
    calls, evals = tables["loss_calls"], tables["evals"]
    sums, training = calls.matches("reduction", "sum"), calls["training"] == 1
    if not sums.any() or sums[training].any() or not sums[~training].all() or not evals.has("loss"):
        return whole, ""
    values = _values_of_a_sample(list(calls.records()), tables.get("steps"))
    whole["evals"] = Table(schema.EVALS, _Averaged(evals, values))
    return whole, PER_SAMPLE if values == 1 else PER_VALUE


def _values_of_a_sample(calls: list[dict[str, Any]], steps: Table | None) -> float:
    """Over how many values of each sample the mean of training goes: the pixels of an image, the tokens of a text; 1
    where the same function does not take that mean."""
    trained = {(row["function"], row["reduction"]) for row in calls if row["training"]}
    if trained != {(row["function"], "mean") for row in calls if not row["training"]}:
        return 1.0
    known = [values for row in calls if not row["training"] and (values := _values_of_a_row(row))]
    return float(np.median(known)) * _rows_of_a_sample(calls, steps) if known else 1.0


def _values_of_a_row(call: dict[str, Any]) -> float:
    """How many values the loss function adds up for one sample (one row of what it is given); 0 where that is not
    known."""
    if call["target_integer"] and call["target_shape"]:
        counted = 1.0 - (call["ignored"] or 0.0)
        return math.prod(_sizes(call["target_shape"])[1:]) * counted
    if call["function"] not in _OF_EACH_VALUE or not call["input_shape"]:
        return 0.0
    return float(math.prod(_sizes(call["input_shape"])[1:]))


def _rows_of_a_sample(calls: list[dict[str, Any]], steps: Table | None) -> float:
    """How many rows a loss function is given for a sample, as where tokens are strung together; 1 as long as they are
    not known to be more."""
    if steps is None or not steps.has("batch_size"):
        return 1.0
    batches = steps["loader_batches"] if steps.has("loader_batches") else np.zeros(len(steps))
    alone = np.where(steps["backwards"] == 1, 1.0, np.nan)  # several may go through the same batch
    sizes = steps["batch_size"] / np.where(batches > 0, batches, alone)
    shapes = [(int(row["step"]), _sizes(row["input_shape"])) for row in calls if row["training"] and row["input_shape"]]
    ratios = [shape[0] / sizes[step] for step, shape in shapes if step < len(sizes) and sizes[step] > 0 and shape]
    return max(float(np.median(ratios)), 1.0) if ratios else 1.0


def _sizes(shape: str) -> list[int]:
    return [int(size) for size in shape.split("x") if size]


class _Averaged:
    """Evaluations whose loss is divided by the values of all samples of a call. Implements :class:`run.Columns`."""

    def __init__(self, evals: Table, values: float) -> None:
        self._evals, self._values = evals, values
        self.rows = len(evals)

    def read(self, name: str) -> tuple[Floats, Mask] | list[str | None]:
        if schema.EVALS.column(name).type == "string":
            return self._evals.text(name)
        values, known = self._evals[name], self._evals.known(name)
        if name != "loss":
            return values, known
        return values * np.fmax(self._evals["losses"], 1) / np.fmax(self._evals["samples"] * self._values, 1), known

    def matches(self, name: str, text: str) -> Mask:
        return self._evals.matches(name, text)

    def forget(self) -> None:
        self._evals.forget()
