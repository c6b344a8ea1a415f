"""What became of a training after its first loss that was not finite, by the losses that followed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.evidence import timing

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Mask

CHANCE: Final = 0.001  # that so many bad batches in a row end a run whose weights are whole


def counted(bad: int, measured: int, begin: int) -> str:
    """A clause that counts the losses that are not finite, of those measured from step `begin` on."""
    if measured == 1:
        return f"No loss was measured after step {begin:,}"
    if bad == measured:
        return f"All {measured:,} losses from step {begin:,} on are not finite"
    return f"{bad:,} of the {measured:,} losses from step {begin:,} on {'is' if bad == 1 else 'are'} not finite"


def may_be_earlier(optimization: Optimization, first: int) -> bool:
    """Whether the loss of the step before this row was not measured: it may not have been finite either."""
    known, begin = np.flatnonzero(optimization.steps.known("loss")[:first]), timing.step_at(optimization, first)
    return begin - (timing.step_at(optimization, int(known[-1])) if len(known) else 0) > 1


def said(optimization: Optimization, bad: Mask, finite: Mask, few: float) -> str:
    """The rest of a sentence that counts the losses in `bad`; `finite`: the others that were measured, from the first
    bad one on. Both of shape [steps].

    A loss that is finite shows that the weights were whole then. After the last such loss, they are taken for lost
    where the bad ones are more than `few`, and more than come in a row by chance as often as they came before.
    """
    if not finite.any():
        return ": what was trained from here on is lost."
    last = int(np.flatnonzero(finite)[-1])
    number, after, before = timing.step_at(optimization, last), int(bad[last:].sum()), int(bad[:last].sum())
    often = before / (before + int(finite.sum()))
    if after >= few and often**after <= CHANCE:
        return f", and after step {number:,} none is: what was trained from then on is lost."
    return f": finite ones come in between, the last at step {number:,}."
