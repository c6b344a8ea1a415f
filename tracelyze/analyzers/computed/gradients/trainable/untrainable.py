"""An optimizer without a single tensor that can get a gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Mask


def is_so(optimization: Optimization, trained: Mask, least: int) -> bool:
    """Whether the only optimizer held nothing trainable at any step, in at least so many with a backward (`trained`).

    Beside other optimizers it may be one whose turn never came. Backwards say that something else can be trained.
    """
    held = optimization.steps["parameters"]
    known = optimization.steps.known("parameters")
    after_backward = trained & (optimization.steps["backwards"] > 0)
    alone = len(optimization.process.optimizations) == 1
    return bool(alone and after_backward.sum() >= least and known.any() and not held[known].any())


def finding(optimization: Optimization, trained: Mask, rule: str) -> Finding:
    """What is wrong, and where to look."""
    begin = timing.step_at(optimization, int(np.argmax(trained)))
    count = int(trained.sum())
    held = optimization.facts.get("parameters")
    of = f"none of the {plural(held, 'tensor')}" if held else "nothing"
    return Finding(
        rule=rule,
        severity="critical",
        confidence="certain",
        title=f"The optimizer holds nothing trainable in all {plural(count, 'step')}: nothing was learned",
        summary=(
            f"In the whole run {of} that the optimizer holds had requires_grad set when it stepped, so no backward "
            "could give them gradients. Backward did run, so something else requires a gradient, other weights or an "
            "input, but this optimizer does not hold it."
        ),
        fix=(
            "Hand the optimizer what is to be trained, and let that require a gradient: freeze first, then add the new "
            "layers, then make the optimizer; or switch them on again behind the lines that freeze."
        ),
        fix_code="print([name for name, p in model.named_parameters() if p.requires_grad])  # what can be trained now",
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, int(np.argmax(trained))),
        evidence=[
            Evidence("tensors that the optimizer holds", held),
            Evidence("of them trainable", 0, "tensors", 1, "with none there is nothing to learn", role="basis"),
            Evidence("steps after a backward", count, "steps"),
        ],
        cost=timing.cost_of(optimization, trained),
        location=optimization.made_at or optimization.step_location,
        seen_at=optimization.step_location,
        charts=pictures.loss(optimization, [Mark(float(begin), "nothing to train")]),
        excluded=["Steps that a loss scaler skipped are not counted."],  # those with a loss of zero are
        false_alarm="A model that is frozen on purpose, in a loop that only pretends to train.",
    )
