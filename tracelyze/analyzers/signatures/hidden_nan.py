"""Losses that were NaN and are not in the log: the Hugging Face Trainer writes the mean of the others in their place.

With `logging_nan_inf_filter` (on by default) every NaN of a logging window counts as the mean of its finite
losses, and a window of NaN alone is logged as exactly 0.0. The gradient norm and evaluations are logged as they are.
ClearML writes 0.0 in place of every NaN and infinity, whatever the value is of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import style

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Mask

_KINDS = (
    "trainer_state",
    "hf-console",
    "tensorboard",
    "wandb",
    "mlflow",
    "trackio",
    "comet",
    "clearml",
    "swanlab",
    "aim",
    "neptune",
    "csv",
    "jsonl",
)
FEW = 3  # logged zeros in a row to the end: one may be a rounded loss
SUDDEN = 0.1  # of the median before: a loss that is learned away passes through smaller values on its way to zero
ZEROED = "clearml"
WHO = ("logging_nan_inf_filter of the Trainer", "ClearML, unless set_reporting_nan_value says otherwise")
WORDS = (
    " The log says 0.0 in their place: the Trainer filters NaN out of what it logs.",
    " The log says 0 from one step to the next, of gradients or evaluations, too: ClearML writes 0 for NaN.",
)
"""Who wrote the zeros, and what a finding says of it: the Trainer, or a tracker that zeroes everything."""


def may_hide(process: Process) -> bool:
    """Whether a finite loss in this run may stand for NaN: the log of a trainer, which may have filtered it."""
    source = process.facts.get("source")
    return isinstance(source, dict) and source.get("kind") in _KINDS


def zeroed(process: Process) -> bool:
    """Whether the tracker writes zeros for NaN in everything it keeps, so that zeros are all there is to see."""
    source = process.facts.get("source")
    return isinstance(source, dict) and source.get("kind") == ZEROED


def since(optimization: Optimization) -> Mask:
    """Rows of the steps whose logged loss of 0.0 stands for NaN, shape [steps]; all false where nothing says so.

    Zeros must fill the log to its end, after losses that were far from zero, and a gradient norm or an evaluation in
    that stretch must be NaN or Inf: a loss that is zero in truth has neither. Of a tracker that zeroes these, too, they
    must all be zero from one step to the next.
    """
    steps, process = optimization.steps, optimization.process
    none = np.zeros(len(steps), dtype=bool)
    rows = np.flatnonzero(steps.known("loss"))
    if not len(rows) or not may_hide(process) or style.rewarded(process):
        return none
    zeros = steps["loss"][rows] == 0.0
    count = len(zeros) if zeros.all() else int(np.argmin(zeros[::-1]))
    if count < FEW or count == len(zeros):
        return none
    first = int(rows[len(rows) - count])
    norms = steps["grad_norm"][first:][steps.known("grad_norm")[first:]]
    evals, begin = process.evals, steps["step"][first]
    evaluated = evals["loss"][evals.known("loss") & (evals["after_step"] >= begin)]
    others = np.r_[norms, evaluated]
    before = steps["loss"][rows[: len(rows) - count]]
    sudden = zeroed(process) and len(others) > 0 and not others.any() and before[-1] >= SUDDEN * np.median(before)
    if np.isfinite(others).all() and not sudden:
        return none
    none[rows[-count:]] = True
    return none
