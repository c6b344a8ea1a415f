"""Evaluation losses that are sums over their batches, as the means that the training loss is made of.

Many scripts add up `F.nll_loss(output, target, reduction="sum")` over a validation set, and divide by its size at the
end. What the loss function returned is too large by the size of a batch to stand beside the loss of training.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tracelyze import schema
from tracelyze.analyzers.recorded.table import Floats, Mask, Table

NOTE = "losses of evaluations are sums over a batch, those of training are means: they were divided by the samples"


def averaged(tables: Mapping[str, Table]) -> tuple[dict[str, Table], list[str]]:
    """The tables with a loss per sample for each evaluation, where losses are sums there and means in training."""
    whole = dict(tables)
    calls, evals = tables["loss_calls"], tables["evals"]
    sums, training = calls.matches("reduction", "sum"), calls["training"] == 1
    if not sums.any() or sums[training].any() or not sums[~training].all() or not evals.has("loss"):
        return whole, []
    whole["evals"] = Table(schema.EVALS, _PerSample(evals))
    return whole, [NOTE]


class _PerSample:
    """Evaluations whose loss is divided by the samples of a call. Implements :class:`run.Columns`."""

    def __init__(self, evals: Table) -> None:
        self._evals = evals
        self.rows = len(evals)

    def read(self, name: str) -> tuple[Floats, Mask] | list[str | None]:
        if schema.EVALS.column(name).type == "string":
            return self._evals.text(name)
        values, known = self._evals[name], self._evals.known(name)
        if name != "loss":
            return values, known
        return values * np.fmax(self._evals["losses"], 1) / np.fmax(self._evals["samples"], 1), known

    def matches(self, name: str, text: str) -> Mask:
        return self._evals.matches(name, text)

    def forget(self) -> None:
        self._evals.forget()
