"""Steps on which no trainable tensor had a gradient other than zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.gradients.trainable import replaced_part
from tracelyze.analyzers.rule import Passed, Skipped
from tracelyze.analyzers.rules.gradients.zero_gradients import silenced_losses, zero_factors
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing.remade import graphs

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Mask
    from tracelyze.diagnosis import Location


CUT_OFF: Final = (
    "Nothing is learned from such steps. Possible causes: the loss is cut off from these parameters (detach, .data, "
    "no_grad, numpy), the optimizer holds another model's parameters, or zero_grad() runs between backward and step."
)
LOSS_OF_ZERO: Final = (
    "The loss is exactly 0 from the first step to the last and gives no gradient. Possible causes: advantages that "
    "are all zero, a softmax or cross-entropy over a single class, terms that cancel, a mask that hides everything."
)
NOTHING_BACK: Final = (
    "Nothing is learned from such steps. Possible causes: dead units, a saturated or clamped output, a function with "
    "zero derivative (sign, round), a loss that is multiplied by zero or fully masked, or gradients zeroed between "
    "backward and step."
)
FOLLOW: Final = (
    "Trace the loss back to the parameters: print loss.grad_fn, and check which parameters have a gradient after "
    "backward."
)
FOLLOWED: Final = (
    "loss.backward()\n"
    "print([n for n, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())])"
)
STRAIGHT_THROUGH: Final = (
    "Train on the input of {of}{smooth}, and use {of} only to evaluate; or let the gradient bypass it."
)
PASSED_ON: Final = (
    "# soft: what it is given today. Forward this is {of}(soft), backward it is soft:\n"
    "hard = soft + (torch.{of}(soft) - soft).detach()"
)


@dataclass(frozen=True)
class Cause:
    """Where gradients like these come from, what to do, an example, and the line to change."""

    said: str
    fix: str = FOLLOW
    code: str = FOLLOWED
    place: Location | None = None


@dataclass(frozen=True)
class Stretch:
    """The longest stretch of observed steps without a gradient that is not zero."""

    first: int  # row of the steps
    last: int  # row of the steps, included
    count: int  # observed steps in the stretch
    observed: int  # observed steps of the run
    alive: int  # of these, with a gradient that is not zero
    sampled: bool  # some steps that trained were not observed
    gaps: bool  # some of these lie within the stretch
    missing: bool  # every gradient is None, and not zero
    without_loss: bool  # the loss is exactly 0 at every observed step
    resting: int  # further observed steps with a loss of exactly 0 and no gradient

    @property
    def whole(self) -> bool:
        """Whether no observed step of the run lies outside."""
        return self.count == self.observed

    def cause(self, optimization: Optimization) -> Cause:
        """What leaves gradients like these, as far as it is known."""
        process = optimization.process
        if self.missing:
            anew = script_lines.made_anew(process) if self.whole else None
            if anew is not None:
                said = (
                    f"Line {anew.line} makes a new tensor out of values alone: it has no graph, and no gradient gets "
                    "past it."
                )
                return Cause(said, *graphs.of_tensors(process, anew), anew)
            part = replaced_part.of(optimization) if self.whole else None
            if part is not None:
                return Cause(part.said, part.fix, part.code, part.put_in)
            cut = script_lines.cut(process)
            silenced = silenced_losses.of(process) if self.whole and cut is None else None
            if silenced is not None:
                return Cause(*silenced)
            if cut is None:
                return Cause(CUT_OFF)
            said = CUT_OFF + script_lines.said(cut, "cuts a graph", "outside of loop and evaluation")
            return Cause(said, *graphs.uncut(process, cut), cut)
        if self.without_loss:
            return Cause(LOSS_OF_ZERO)
        zeros = zero_factors.of(optimization) if self.whole else None
        if zeros is not None:
            return Cause(*zeros)
        event = next(iter(process.events_of("flat-loss")), None)
        if event is None or not self.whole:
            return Cause(NOTHING_BACK)
        names = (event["name"] or "").split(", ")
        line = script_lines.flat(process, names)
        of = " and ".join(f"{name}()" for name in names)
        smooth = ", or on its tanh" if {"sign", "sgn"}.issuperset(names) else ""
        at = f" Line {line.line} calls it." if line is not None and len(names) == 1 else ""
        said = (
            f"Every path from the loss to the parameters goes through {of}, whose derivative is zero wherever it "
            "exists."
        )
        return Cause(said + at, STRAIGHT_THROUGH.format(of=of, smooth=smooth), PASSED_ON.format(of=names[0]), line)


def longest(optimization: Optimization, trained: Mask) -> Stretch | Passed | Skipped:
    """The longest stretch of the steps that `trained`, shape [steps]; or why there is none to judge."""
    steps = optimization.steps
    none, zero = np.nan_to_num(steps["grads_none"]), np.nan_to_num(steps["grads_zero"])
    dead = none + zero >= steps["parameters"]
    lost = steps.known("loss") & ~np.isfinite(steps["loss"])  # no number: a fault with a name of its own
    usable = trained & steps.known("grads_none") & (steps["parameters"] > 0) & ~lost
    observed = usable & (steps.known("grads_zero") | dead)  # whether gradients are zero is looked at now and then
    satisfied = steps["loss"] == 0  # a hinge that is satisfied has no gradient, rightly
    never = bool(satisfied[observed].all())  # there was nothing to be satisfied
    if never and not dead[observed].all():
        return Passed("the loss reads 0 at every step, and gradients that are not zero come of it all the same")
    rows = np.flatnonzero(observed if never else observed & ~satisfied)
    if not len(rows):
        return Skipped("no sampled step had a backward, trainable tensors and a loss other than zero")
    begin, end = statistics.longest_run(dead[rows])
    within = rows[begin:end]
    return Stretch(
        first=int(rows[begin]),
        last=int(rows[end - 1]),
        count=end - begin,
        observed=len(rows),
        alive=int((~dead[rows]).sum()),
        sampled=bool(len(rows) < trained.sum()),
        gaps=bool(end - begin < trained[rows[begin] : rows[end - 1] + 1].sum()),
        missing=bool((none[within] >= steps["parameters"][within]).all()),
        without_loss=never,
        resting=0 if never else int((observed & satisfied & dead).sum()),
    )
