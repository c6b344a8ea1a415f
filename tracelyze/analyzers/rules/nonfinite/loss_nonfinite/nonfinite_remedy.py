"""What to do about a loss that is NaN or Inf: about the operation that made it, or about what spoiled the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.gradients import exponentials
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rules.nonfinite.loss_nonfinite import lone_roots, lone_samples
from tracelyze.analyzers.script.loss import broken_operation, singular_gradients
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

UNCOUNTED = " No target counted in its batch: its loss is a mean over none, 0 divided by 0."
_COUNT = (
    "See why no target of these batches counts: where labels are masked, the answer's marker may never be found. A "
    "mean over what counts needs one that does: leave out batches, or samples, without any."
)
_COUNT_CODE = (
    "if not bool((labels != -100).any()):\n    continue  # no target counts; labels: those that the loss is given"
)
BLEW_UP = "Lower or warm up the learning rate, or clip gradients, and stop at the first loss that is not finite."
FIX = (
    "Stop where it begins: at a loss that is not finite (log(0), division by zero, an empty mask, a bad sample), or at "
    "a gradient that is not (of sqrt(0), say), which spoils the weights, and the loss one step later."
)
FIX_CODE = (
    'if not torch.isfinite(loss):\n    torch.save((inputs, targets), "bad_batch.pt")\n'
    '    raise RuntimeError(f"the loss is {loss.item()}: see bad_batch.pt")\nloss.backward()\n'
    "# raises at a gradient that is NaN or Inf, and changes no other:\n"
    "torch.nn.utils.clip_grad_norm_(\n    model.parameters(), 1e30, error_if_nonfinite=True\n)"
)


def remedy(optimization: Optimization, first: int, blew_up: bool) -> Remedy:
    """What to do about the operation that made it, or about what spoiled the weights before; `first`: the row of the
    first such loss."""
    process, step = optimization.process, timing.step_of_process(optimization, first)
    if counts_none(process, step):
        return Remedy(_COUNT, _COUNT_CODE, optimization.loss_location, why=UNCOUNTED)
    fix, code = broken_operation.fix(process, step) or (FIX, FIX_CODE)
    place = broken_operation.line(process, step)
    if (exponential := exponentials.broken(optimization, place, step)) is not None:
        fix, code = exponential.fix, exponential.code
    spoiled = singular_gradients.spoiled(process, step) if not blew_up else None
    spoiled = spoiled or lone_samples.of(optimization, first, step) or lone_roots.of(process, step)
    if spoiled is None:
        return Remedy(BLEW_UP if blew_up else fix, code, place)
    return Remedy(
        BLEW_UP if blew_up else spoiled.fix,
        spoiled.code or code,
        spoiled.place or place,
        spoiled.diff,
        why=f" {spoiled.told}",
    )


def counts_none(process: Process, step: int) -> bool:
    """Whether all targets were ignore_index in every call of a training loss that was looked at in this step."""
    calls = [row for row in process.tables["loss_calls"].records() if row["training"] and row["step"] == step - 1]
    return bool(calls) and all(row["ignored"] is not None and row["ignored"] >= 1.0 for row in calls)
