"""What the training losses around a validation say of the weights that it measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracelyze.analyzers.evidence import timing

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

NEAR = 10  # training losses up to the validation, of which the last one counts


class Beside(NamedTuple):
    """The training losses up to a validation, the one after it (None: there is none), and whether all are finite."""

    before: np.ndarray
    after: float | None
    all_finite: bool

    @property
    def known_finite(self) -> bool:
        """Whether a loss is known from before, and neither it nor the next one shows that the weights were broken."""
        return bool(len(self.before)) and np.isfinite(self.before[-1]) and self.after_is_finite is not False

    @property
    def after_is_finite(self) -> bool | None:
        """None where no loss came after."""
        return None if self.after is None else bool(np.isfinite(self.after))

    @property
    def told(self) -> str:
        """A sentence; empty where the loss before it is not known, or was not finite either."""
        if not len(self.before) or not np.isfinite(self.before[-1]):
            return ""
        if self.after_is_finite is False:
            return "The training loss was finite before it, and not after it: the weights may be broken as well."
        if self.after_is_finite:
            return "The training loss was finite before it and after it, so the weights themselves are not broken."
        return "The training loss was finite before it."

    @property
    def in_title(self) -> str:
        """What a title adds."""
        if not self.known_finite:
            return ""
        return ", but training losses are finite" if self.all_finite else ", but the training loss was finite"


def losses(optimization: Optimization | None, step: int) -> Beside:
    """Of a validation after this step."""
    if optimization is None:
        return Beside(np.empty(0), None, False)
    loss, known = optimization.steps["loss"], optimization.steps.known("loss")
    done = timing.numbers(optimization) <= step
    later = loss[known & ~done]
    return Beside(
        loss[known & done][-NEAR:], float(later[0]) if len(later) else None, bool(np.isfinite(loss[known]).all())
    )
