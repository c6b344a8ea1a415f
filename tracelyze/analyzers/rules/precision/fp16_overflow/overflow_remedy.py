"""What to do about overflows of float16: about gradients, or about what overflows in the forward pass already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.script.editing.remade.precision import overgrown
from tracelyze.analyzers.script.loss import broken_modules
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.gradients.overflows import Overflows
    from tracelyze.analyzers.recorded.run import Optimization

FIX = (
    "Use bfloat16 where the hardware has it (no scaler needed). Otherwise find what overflows: clip gradients after "
    "scaler.unscale_, lower the learning rate, keep softmax, norms, exponentials and the loss in float32."
)
FIX_FORWARD = (
    "Use bfloat16 where the hardware has it (no scaler needed). Otherwise compute in float32 what overflows in the "
    "forward pass: large inputs and targets, softmax, norms, exponentials, and the loss. No loss scale helps there."
)
FIX_POWER = (
    "Use bfloat16 where the hardware has it (no scaler needed). Otherwise take the {kind} of float32 numbers. No loss "
    "scale helps there."
)
FIX_BFLOAT16 = (
    "Find what overflows: clip gradients after scaler.unscale_, lower the learning rate. bfloat16 holds numbers as "
    "large as float32 does, so that it needs no scaler: leave it out."
)
IN_FORWARD = " The loss itself is not finite in these steps, so the overflow is already in the forward pass."
NO_GAIN = " Autocast is to bfloat16 here, where a scaler gains nothing."
FIX_CODE_BFLOAT16 = "loss.backward()\noptimizer.step()  # without the scaler, which only float16 needs"
FIX_CODE = 'with torch.autocast("{device}", dtype=torch.bfloat16):\n    loss = criterion(model(x), y)'


def remedy(optimization: Optimization, seen: Overflows, kind: str) -> Remedy:
    """In the forward pass, where the loss itself was not finite; else about the gradients. `kind`: the 16-bit type."""
    loss = optimization.steps["loss"][seen.bad]
    forward = bool(optimization.steps.known("loss")[seen.bad].any()) and not np.isfinite(loss).any()
    why = IN_FORWARD if forward else ""
    if kind == "bfloat16":
        return Remedy(FIX_BFLOAT16, FIX_CODE_BFLOAT16, why=why + NO_GAIN)
    code = FIX_CODE.format(device=str(optimization.facts.get("device") or "cuda").partition(":")[0])
    broken = broken_modules.first_of(optimization.process) if forward and kind == "float16" else None
    if broken is None:
        return Remedy(FIX_FORWARD if forward else FIX, code, why=why)
    why += f" {broken_modules.named(broken)} is the first module that puts out Inf or NaN there."
    grown = overgrown.within(optimization.process, broken)
    if grown is None:
        return Remedy(FIX_FORWARD, code, why=why)
    fix = FIX_POWER.format(kind=grown.kind) if grown.kind else FIX_FORWARD
    return Remedy(fix, grown.remedy or code, grown.line, why=why + grown.said())
