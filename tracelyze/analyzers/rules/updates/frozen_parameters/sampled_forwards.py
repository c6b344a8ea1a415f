"""Whether the forwards that were sampled of a training ran the modules which hold tensors without a gradient.

Of a program that trains several times, those of an earlier training say nothing of a later one, whose model may have
modules of the same names, or hold the earlier model under a name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

_UNUSED: Final = (
    "No sampled forward ran these layers: they belong to a branch that is not taken (such as an expert without "
    "tokens), or to an unused part."
)
_CUT: Final = (
    "Forward runs the modules that hold them, but nothing leads from them to the loss: the path is cut (detach(), "
    ".data, .item(), numpy, no_grad, argmax), a head's loss is not added, or forward does not use them."
)
_UNKNOWN: Final = (
    "No forward of this training was sampled: either none runs the modules that hold them, or nothing leads from them "
    "to the loss, as where the path is cut (detach(), .data, .item(), numpy, no_grad, argmax)."
)
_RUN: Final = "If they should train, have forward call them, or the script take the branch that does."
_LOOK: Final = "If they should train, find what cuts them off from the loss."
_EITHER: Final = "If they should train, see that forward calls them, and find what cuts them off from the loss."
_LEFT: Final = (
    "loss.backward()\nprint([name for name, p in model.named_parameters() if p.requires_grad and p.grad is None])"
)


@dataclass(frozen=True)
class Sampled:
    """`ran`: a sampled forward ran one of the modules; `known`: some forward of this training was sampled."""

    ran: bool
    known: bool

    @property
    def may_have_run(self) -> bool:
        """Whether nothing says that forward leaves them out."""
        return self.ran or not self.known

    @property
    def said(self) -> str:
        """Why there was no gradient, as far as that is known."""
        return _CUT if self.ran else _UNUSED if self.known else _UNKNOWN

    @property
    def fix(self) -> tuple[str, str]:
        """What to do about it, and an example."""
        return (_LOOK, _LEFT) if self.ran else (_RUN, "") if self.known else (_EITHER, _LEFT)


def of(optimization: Optimization, modules: set[str]) -> Sampled:
    """What the samples from the beginning of this optimizer's training on say of these modules."""
    table = optimization.process.tables["activations"]
    late = ~(table["time"] <= _begin(optimization))  # where no time was recorded, all are
    ran = {name for name, own in zip(table.text("module"), late.tolist(), strict=True) if own and name}
    names = {name for module in modules for name in _names_of(optimization, module)}
    return Sampled(bool(ran & names), bool(late.any()))


def _names_of(optimization: Optimization, module: str) -> set[str]:
    """What forwards may call a module: a model that was called by itself first may be a part of another one since, as a
    pretrained encoder is of a classifier. Both are known by the line that made them."""
    rows = optimization.process.tables["modules"].shared_records()
    models = {(row["kind"], row["made_at"]) for row in rows if not row["module"] and row["made_at"] is not None}
    parts = {row["module"] for row in rows if row["module"] and (row["kind"], row["made_at"]) in models}
    inner = {module.removeprefix(f"{part}.") for part in parts}
    return {module} | inner | {f"{part}.{module}" for part in parts}


def _begin(optimization: Optimization) -> float:
    """When the last step of another optimizer ended before the first of this one; before everything without such."""
    whole = optimization.process.whole or optimization.process
    times, first = whole.steps["time"], np.nanmin(optimization.steps["time"], initial=np.inf)
    return float(np.max(times[times < first], initial=-np.inf))
