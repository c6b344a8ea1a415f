"""A step whose gradients were not finite: what is known of its loss, of them, and of what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.gradients import misplaced_clips
from tracelyze.analyzers.computed.optimization import clip_values, prelude
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.script.candidates import attended_rows
from tracelyze.analyzers.script.loss import singular_gradients
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

USUAL: Final = 1e3
"""Of a gradient norm: what grows without bound passes far above this before it leaves float32."""
_SKIP: Final = " Skip steps whose gradients are not finite."
_CLIP: Final = " Clip gradients between backward and step, and skip steps whose gradients are not finite."
OVERFLOWED: Final = (
    "Lower or warm up the learning rate.",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)\noptimizer.step()",
    None,
)
"""What to do about gradients that have grown without bound, an example, and no edit."""
_FILTERED: Final = (
    "gradients were not finite. Whether the loss was, the log may not say: the Hugging Face Trainer logs the mean of "
    "other losses in place of NaN (logging_nan_inf_filter). The loss itself may have broken, or"
)
_SOMEWHERE: Final = (
    " (sqrt at exactly 0, log of 0, division by 0, acos at 1), or a mask hid a NaN of the forward from the loss: 0 "
    "times NaN is NaN in the backward."
)


def overflowed(optimization: Optimization, first: int) -> bool:
    """Whether the norm is infinite although every gradient is a number: float32 does not hold the sum of its squares,
    or the norm had grown so far before that it may be so."""
    return _all_finite(optimization, first) or prelude.outgrown(optimization, first) is not None


def _all_finite(optimization: Optimization, first: int) -> bool:
    steps = optimization.steps
    return bool(np.isinf(steps["grad_norm"][first]) and steps["grads_nonfinite"][first] == 0)


def loss_is_known(optimization: Optimization, first: int) -> bool:
    """Whether the loss of that step was measured."""
    return bool(np.isfinite(optimization.steps["loss"][first]))


def title(optimization: Optimization, first: int, where: str) -> str:
    """`where`: which gradient was the first, in brackets."""
    begin, known = timing.step_at(optimization, first), np.flatnonzero(prelude.looked_at(optimization)[:first])
    later = len(known) and begin - timing.step_at(optimization, int(known[-1])) > 1
    when = "by" if later and not loss_is_known(optimization, first) else "at"  # earlier ones would have broken the loss
    what = "The gradient norm{of} became Inf" if _all_finite(optimization, first) else "Gradients{of} became NaN or Inf"
    return f"{what.format(of=timing.name_of(optimization))} {when} step {begin:,}{where}"


def told(optimization: Optimization, first: int, filtered: bool, operation: str) -> str:
    """What came before, and what became of it. `filtered`: the log may hide that the loss broke; `operation`: what can
    have made them, by the graph."""
    begin, grown = timing.step_at(optimization, first), prelude.outgrown(optimization, first)
    if grown is not None:
        return (
            f"At step {begin:,} the norm of the gradients was not finite any more, after it had grown to "
            f"{number(grown)}: they had grown without bound."
        )
    if _all_finite(optimization, first):
        return (
            f"At step {begin:,} the norm of the gradients was infinite although each gradient was a number: the sum of "
            "their squares is more than float32 holds."
        )
    if filtered:
        either = _FILTERED
    else:
        loss = " although the loss still was" if loss_is_known(optimization, first) else ""
        either = f"gradients were not finite{loss}, and no loss scaler skipped the step{_after(optimization, first)} "
        either += "Either" if loss else "The loss of that step is not known: it may have broken first, or else"
    if operation and not filtered and _at_once(optimization, first):
        at_once = f"At step {begin:,} {either.removesuffix('Either')}"
        if first:
            at_once += f"Their norm was {number(float(optimization.steps['grad_norm'][first - 1]))} one step before. "
        if operation == attended_rows.MASKED:
            return f"{at_once}Perhaps {attended_rows.TOLD}{misplaced_clips.told(optimization)}"
        named = f"{singular_gradients.told(operation)}.{misplaced_clips.told(optimization)}"
        return f"{at_once}Between the loss and the parameters, this can have made them: {named}"
    if operation == attended_rows.MASKED:
        return (
            f"At step {begin:,} {either} the gradients had grown without bound, or {attended_rows.TOLD}"
            f"{misplaced_clips.told(optimization)}"
        )
    which = "the" if misplaced_clips.spread(optimization, first) else "these"
    where = f". Between the loss and {which} parameters: {singular_gradients.told(operation)}." if operation else None
    where = where or _SOMEWHERE
    return (
        f"At step {begin:,} {either} the gradients had grown without bound, or one operation has no finite derivative "
        f"there{where}{misplaced_clips.told(optimization)}"
    )


def _at_once(optimization: Optimization, first: int) -> bool:
    """Whether nothing had grown before a step whose loss is known: it is the first one, or the norm right before was
    that of a training which works, and not that of gradients which a clip had cut."""
    if not loss_is_known(optimization, first):
        return False
    if not first:
        return True
    norm, source, clips = (optimization.steps[name][first - 1] for name in ("grad_norm", "grad_norm_source", "clips"))
    return bool(norm < USUAL and (source == clip_values.RETURNED or not np.nan_to_num(clips)))


def _after(optimization: Optimization, first: int) -> str:
    """Whether they went into the weights, by the losses that came after."""
    later = optimization.steps["loss"][first + 1 :][optimization.steps.known("loss")[first + 1 :]]
    if np.isfinite(later).any():
        return ". Later losses are finite all the same."
    return (
        ": they went into the weights." if len(later) else ": they went into the weights, unless the script drops them."
    )


def remedy(optimization: Optimization, first: int, operation: str) -> str:
    """What to add to the remedy of the operation. A clip bounds what grows: of a NaN it makes one of every gradient."""
    clips = optimization.steps["clips"]
    clipped = len(clips) and float((np.nan_to_num(clips) >= 1).mean()) > 1 / 2
    if misplaced_clips.seen(optimization):
        return _CLIP
    return _SKIP if clipped or (operation and _at_once(optimization, first)) else _CLIP
