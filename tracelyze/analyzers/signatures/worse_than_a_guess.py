"""A validation loss that is far above that of a guess in every pass: the model never was any good at these data."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls, validation
from tracelyze.analyzers.evidence import guessing
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

FAR: Final = 3.0  # times a guess: one that is sure of itself and right in half of the samples stays below it


class WorseThanAGuess(NamedTuple):
    """The lowest and the median validation loss, the loss of a guess, and among how many classes; how many passes, and
    the steps done before the first one."""

    lowest: float
    usual: float
    guess: float
    classes: int
    passes: int
    first: int

    def said(self) -> str:
        """The lowest loss beside that of a guess: a clause."""
        return (
            f"the lowest validation loss, {number(self.lowest)}, is far above that of a guess among {self.classes:,} "
            f"classes ({number(self.guess)})"
        )


def found(optimization: Optimization) -> WorseThanAGuess | None:
    """None where the loss of a guess is not known, as of anything but one cross-entropy, which validation takes too."""
    process = optimization.process
    classes = guessing.classes(optimization)
    after, losses, _samples = validation.curve(process)
    finite = np.isfinite(after) & np.isfinite(losses)
    after, losses = after[finite], losses[finite]
    calls = {row["function"] for row in process.tables["loss_calls"].records() if row["training"]}
    if not classes or not len(losses) or not any(loss_calls.in_evaluation(process, name) for name in calls):
        return None
    lowest, guess = float(losses.min()), log(classes)
    if lowest < FAR * guess:
        return None
    return WorseThanAGuess(lowest, float(np.median(losses)), guess, classes, len(losses), int(after[0]))
