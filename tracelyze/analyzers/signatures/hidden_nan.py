"""Losses that were NaN and are not in the log: the Hugging Face Trainer writes the mean of the others in their place.

With `logging_nan_inf_filter` (on by default) every NaN of a logging window counts as the mean of its finite
losses, and a window of NaN alone is logged as exactly 0.0. The gradient norm and evaluations are logged as they are.
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


def may_hide(process: Process) -> bool:
    """Whether a finite loss in this run may stand for NaN: the log of a trainer, which may have filtered it."""
    source = process.facts.get("source")
    return isinstance(source, dict) and source.get("kind") in _KINDS


def since(optimization: Optimization) -> Mask:
    """Rows of the steps whose logged loss of 0.0 stands for NaN, shape [steps]; all false where nothing says so.

    Zeros must fill the log to its end, after losses that were far from zero, and a gradient norm or an evaluation in
    that stretch must be NaN or Inf: a loss that is zero in truth has neither.
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
    norms = steps.known("grad_norm")[first:] & ~np.isfinite(steps["grad_norm"][first:])
    evals, begin = process.evals, steps["step"][first]
    bad = evals.known("loss") & ~np.isfinite(evals["loss"]) & (evals["after_step"] >= begin)
    if not norms.any() and not bad.any():
        return none
    none[rows[-count:]] = True
    return none
