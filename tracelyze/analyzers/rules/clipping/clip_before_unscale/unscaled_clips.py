"""A clip of unscaled gradients where a library holds the loss scaler: the script has none that it could ask."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.editing import trainer_examples

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_PASSED: Final = re.compile(r"(?P<holder>[A-Za-z_][\w.]*)\.(?P<method>backward|manual_backward)\(\s*[^\s)]")
_CLIP: Final = re.compile(r"(?:[A-Za-z_][\w.]*\.)?clip_grad_norm_\(")
_ACCELERATE: Final = "Clip with {holder}.clip_grad_norm_, which unscales the gradients first."
_FABRIC: Final = "Clip with {holder}.clip_gradients, which unscales the gradients first."
_LIGHTNING: Final = (
    "Clip in on_before_optimizer_step: Lightning unscales the gradients before it calls that, not earlier."
)
_TRAINER: Final = (
    "Leave this clip out and set max_grad_norm in TrainingArguments: the Trainer unscales before it clips."
)


def by_library(process: Process, backward: Location | None, clip: str) -> tuple[str, str] | None:
    """Words and an example; None where the script scales its loss by itself, or by what is not known. `clip`: the
    script's own call."""
    _, method = trainer_examples.trainer_of(process)
    passed = _PASSED.search(backward.source) if backward is not None else None
    holder = passed["holder"] if passed is not None else ""
    if method == "fit" or (passed is not None and passed["method"] == "manual_backward"):
        return _LIGHTNING, f"def on_before_optimizer_step(self, optimizer):\n{textwrap.indent(clip, '    ')}"
    if method == "train":
        return _TRAINER, "TrainingArguments(output_dir, max_grad_norm=1.0)  # beside what it is given today"
    if holder.lower().endswith("accelerator"):
        own = _CLIP.sub(f"{holder}.clip_grad_norm_(", clip)
        return _ACCELERATE.format(holder=holder), f"if {holder}.sync_gradients:\n{textwrap.indent(own, '    ')}"
    if holder.lower().endswith("fabric"):
        return _FABRIC.format(holder=holder), f"{holder}.clip_gradients(model, optimizer, max_norm=1.0)"
    return None
