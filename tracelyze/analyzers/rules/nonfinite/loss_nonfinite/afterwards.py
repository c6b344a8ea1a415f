"""What became of a training after its first loss that was not finite, by the losses that followed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.evidence import timing

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Mask, Table

CHANCE: Final = 0.001  # that so many bad batches in a row end a run whose weights are whole


def counted(bad: int, measured: int, begin: int) -> str:
    """A clause that counts the losses that are not finite, of those measured from step `begin` on."""
    if measured == 1:
        return f"No loss was measured after step {begin:,}"
    if bad == measured:
        return f"All {measured:,} losses from step {begin:,} on are not finite"
    return f"{bad:,} of the {measured:,} losses from step {begin:,} on {'is' if bad == 1 else 'are'} not finite"


def kinds(steps: Table, bad: Mask) -> str:
    """What the losses in `bad` are."""
    losses = steps["loss"][bad]
    found = [name for name, is_one in (("NaN", np.isnan(losses)), ("Inf", np.isinf(losses))) if is_one.any()]
    return " or ".join(found) or "NaN"


def may_be_earlier(optimization: Optimization, first: int) -> bool:
    """Whether the loss of the step before this row was not measured: it may not have been finite either."""
    known, begin = np.flatnonzero(optimization.steps.known("loss")[:first]), timing.step_at(optimization, first)
    return begin - (timing.step_at(optimization, int(known[-1])) if len(known) else 0) > 1


def said(optimization: Optimization, bad: Mask, finite: Mask, few: float) -> str:
    """The rest of a sentence that counts the losses in `bad`; `finite`: the others that were measured, from the first
    bad one on. Both of shape [steps]."""
    if not finite.any():
        return ": what was trained from here on is lost."
    number = timing.step_at(optimization, int(np.flatnonzero(finite)[-1]))
    if lost_since(bad, finite, few) is not None:
        return f", and after step {number:,} none is: what was trained from then on is lost."
    return f": finite ones come in between, the last at step {number:,}."


def lost_since(bad: Mask, finite: Mask, few: float) -> int | None:
    """The row from which on what was trained is lost; None where the weights may be whole.

    A loss that is finite shows that the weights were whole then. After the last such loss, they are taken for lost
    where the bad ones are more than `few`, and more than come in a row by chance as often as they came before.
    """
    if not finite.any():
        return int(np.argmax(bad))
    last = int(np.flatnonzero(finite)[-1])
    after, before = int(bad[last:].sum()), int(bad[:last].sum())
    often = before / (before + int(finite.sum()))
    return last + 1 if after >= few and often**after <= CHANCE else None
