"""What to change about the clearing of gradients: in a loop of the script's own, in a closure, and beside a trainer.

Where a trainer's loop makes the steps, the script has no `optimizer.step()` beside which a zero_grad could be put, and
that loop clears by itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import trainer_examples

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location

FIX: Final = (
    "Clear the gradients once per optimizer step: right after the step, or before the first backward pass of the next."
)
FIX_CODE: Final = "loss.backward()\noptimizer.step()\noptimizer.zero_grad()"
_IN_CLOSURE: Final = (
    "Clear the gradients at the beginning of the closure: the optimizer may call it several times in one step."
)
_CLOSURE: Final = """\
def closure():
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    return loss

optimizer.step(closure)
"""
_BY_HAND: Final = "for parameter in parameters:\n    parameter.grad = None\nloss.backward()"
_OWN: Final = (
    "{call}() makes the steps. The loops of transformers and of Lightning clear gradients once per step by themselves: "
    "look for what keeps this one from it, such as a zero_grad() or optimizer_zero_grad() that was overridden and does "
    "nothing."
)
_OUT: Final = (
    "{line}: {call}() makes the steps, and the loops of transformers and of Lightning clear gradients once per step by "
    "themselves."
)
_NOWHERE_ELSE: Final = ", and nowhere else: under the same condition as the step"
_IN_ACCUMULATE: Final = (
    ", or, with Accelerate, inside of accumulate(), where the wrapped optimizer skips both between steps"
)
_BESIDE: Final = (
    "{call}() makes the steps. The Trainer of transformers clears the gradients of its model alone: have a callback "
    "clear what else the optimizer holds. In Lightning, look for a zero_grad() or optimizer_zero_grad() that was "
    "overridden."
)
_CALLBACK: Final = """# with the Trainer of transformers, before it trains:
class ClearAll(TrainerCallback):
    def on_step_end(self, args, state, control, optimizer=None, **kwargs):
        optimizer.zero_grad()

{trainer}.add_callback(ClearAll())"""
_CLEARS: Final = ("zero_grad", "clear-text", "clears")  # roles of lines
_NEAR: Final = 3  # lines: a scheduler and a scaler may be between the step and its zero_grad
_CALL: Final = re.compile(r"\.(?:train|fit)\(")


def once_per_step(optimization: Optimization, more: str) -> tuple[str, str]:
    """Words and an example where nothing clears. `more`: what is known of it, for a loop of the script's own."""
    call = _call(optimization.process)
    if call:
        return _OWN.format(call=call), ""
    if in_closure(optimization):
        return _IN_CLOSURE + more, _CLOSURE
    return FIX + more, _BY_HAND if optimization.facts.get("name") == "ByHand" else FIX_CODE


def in_closure(optimization: Optimization) -> bool:
    """Whether its backwards run within its steps, in a function that the script hands to them."""
    step, backward = optimization.step_location, optimization.backward_location
    given = re.search(r"\.step\((?P<name>\w+)\)", step.source) if step is not None else None
    return given is not None and backward is not None and backward.function == given["name"]


def in_part(process: Process) -> tuple[str, str] | None:
    """Words and an example where a trainer's loop leaves a part uncleared; None where the script makes the steps."""
    trainer, method = trainer_examples.trainer_of(process)
    if not trainer:
        return None
    return _BESIDE.format(call=f"{trainer}.{method}"), _CALLBACK.format(trainer=trainer) if method == "train" else ""


def taken_out(process: Process, line: Location | None) -> str:
    """What to do where gradients are cleared at a wrong time, beside a trainer's loop, by this line where it is known;
    empty where the script makes the steps."""
    call = _call(process)
    if not call:
        return ""
    where = f"Take the clearing out of line {line.line}" if clears(line) and line else "Take this clearing out"
    return _OUT.format(line=where, call=call)


def uncleared_step(optimization: Optimization) -> Location | None:
    """Of several lines that step, the only one in whose function nothing clears: a second phase, which was written
    without what the first one has."""
    lines = optimization.process.locations
    cleared = {one.file_function for role in _CLEARS for one in lines(role)}
    bare = [one for one in lines("step") if one.file_function not in cleared]
    return bare[0] if len(bare) == 1 and len(lines("step")) > 1 and cleared else None


def between_backwards(optimization: Optimization, line: Location | None) -> tuple[str, str]:
    """Words and an example where gradients are cleared between the backwards of a step, by this line if it is known."""
    out = taken_out(optimization.process, line)
    if out:
        return out, ""
    step = optimization.step_location
    there = _behind(optimization, step)
    if line is not None and there is not None and there.line != line.line:
        return (
            f"Take the clearing out of line {line.line}: line {there.line}, behind the step, clears once per step.",
            "",
        )
    moved = "Call zero_grad right behind the optimizer's step"
    if line is not None and step is not None and line.file == step.file:
        cleared = "zero_grad" if "zero_grad" in line.source else "what clears the gradients"
        moved = f"Move {cleared} from line {line.line} to right behind the optimizer's step (line {step.line})"
    backward = optimization.backward_location
    by_torch = backward is not None and re.match(r"[\w.]*loss\w*\.backward\(", backward.source) is not None
    moved += _NOWHERE_ELSE + ("" if by_torch else _IN_ACCUMULATE)
    return f"{moved}.", "optimizer.step()  # as it is\noptimizer.zero_grad()"


def beside_each_backward(optimization: Optimization, line: Location | None) -> bool:
    """Whether a line that clears stands in one block with the only backward, and so runs as often. Elsewhere it may run
    for some of the micro-batches alone."""
    backwards = optimization.process.locations("backward")
    if line is None or len(backwards) != 1 or backwards[0].file_function != line.file_function:
        return False
    text = recorded_text.around(optimization.process, line)
    between = range(min(line.line, backwards[0].line), max(line.line, backwards[0].line) + 1)
    depths = [recorded_text.indent_of(text[at]) for at in between if text.get(at, "").strip()]
    return all(at in text for at in between) and depths[0] == depths[-1] == min(depths)


def _behind(optimization: Optimization, step: Location | None) -> Location | None:
    """The line that clears right behind a step already, under the same condition."""
    if step is None:
        return None
    text = recorded_text.around(optimization.process, step)
    depth = recorded_text.indent_of(text.get(step.line, ""))
    lines = [one for role in _CLEARS[:2] for one in optimization.process.locations(role)]
    near = [one for one in lines if one.file_function == step.file_function and 0 < one.line - step.line <= _NEAR]
    return next((one for one in near if recorded_text.indent_of(text.get(one.line, "")) == depth), None)


def clears(line: Location | None) -> bool:
    """Whether a line clears gradients by itself, and is not the trainer's call, in which all that happens."""
    return line is not None and not _CALL.search(line.source)


def _call(process: Process) -> str:
    return ".".join(trainer_examples.trainer_of(process)).strip(".")
