"""An optimizer without a single tensor that can get a gradient."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Mask
    from tracelyze.diagnosis import Location


_FREEZE_FIRST: Final = (
    "Hand the optimizer what is to be trained, and let that require a gradient: freeze first, then add the new layers, "
    "then make the optimizer; or switch them on again behind the lines that freeze."
)
_TRAINABLE_NOW: Final = "print([name for name, p in model.named_parameters() if p.requires_grad])  # trainable now"
_WRAPS: Final = (
    " Line {line} calls get_peft_model after the optimizer was made: that freezes the weights which it holds."
)
_MAKE_BELOW: Final = (
    "Make the optimizer (line {made}), and what is made of it, below line {line}, of the parameters that require a "
    "gradient there."
)


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
    wrapped = _wrapped_below(optimization)
    made = optimization.made_at
    return Finding(
        rule=rule,
        severity="critical",
        confidence="certain",
        title=f"The optimizer holds nothing trainable in all {plural(count, 'step')}: nothing was learned",
        summary=(
            f"Whenever it stepped, {of} that the optimizer holds had requires_grad set, so no backward could give them "
            "gradients. Backward did run, so something else requires a gradient, other weights or an input, but this "
            f"optimizer does not hold it.{_WRAPS.format(line=wrapped.line) if wrapped else ''}"
        ),
        fix=_MAKE_BELOW.format(made=made.line, line=wrapped.line) if made and wrapped else _FREEZE_FIRST,
        fix_code=(_of_the_trainable(optimization, wrapped) if wrapped else "") or _TRAINABLE_NOW,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, int(np.argmax(trained))),
        evidence=[
            Evidence("tensors that the optimizer holds", held),
            Evidence("of them trainable", 0, "tensors", 1, "with none there is nothing to learn", role="basis"),
            Evidence("steps after a backward", count, "steps"),
        ],
        cost=timing.cost_of(optimization, trained),
        location=made or optimization.step_location,
        seen_at=optimization.step_location,
        charts=pictures.loss(optimization, [Mark(float(begin), "nothing to train")]),
        excluded=["Steps that a loss scaler skipped are not counted."],  # those with a loss of zero are
        false_alarm="A model that is frozen on purpose, in a loop that only pretends to train.",
    )


def _wrapped_below(optimization: Optimization) -> Location | None:
    """The only line that puts adapters into a model, where it stands below the one that makes the optimizer."""
    made = optimization.made_at
    wrapping = [one for one in optimization.process.locations("module") if "get_peft_model(" in one.source]
    if made is None or len(wrapping) != 1 or wrapping[0].file_function != made.file_function:
        return None
    return wrapping[0] if wrapping[0].line > made.line else None


def _of_the_trainable(optimization: Optimization, wrapped: Location) -> str:
    """The statement that makes the optimizer, with what can be trained once the model is wrapped."""
    own, wraps = own_statement.at(optimization.process, optimization.made_at), parsed_line.of(wrapped)
    call = own.only_call(str(optimization.facts.get("name"))) if own is not None and own.is_whole else None
    model = wraps.statement.targets[0] if wraps is not None and isinstance(wraps.statement, ast.Assign) else None
    if own is None or wraps is None or call is None or model is None or not call.args:
        return ""
    trainable = f"[p for p in {wraps.text_of(model)}.parameters() if p.requires_grad]"
    return f"# below line {wrapped.line}:\n{own.dedented(own.parsed.with_parts({call.args[0]: trainable}))}"
