"""Backwards of several losses through one graph, in one line of the script, as one backward of their sum."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

FIX: Final = (
    "This line calls all backwards of a step, and each but the last needs the graph: add the losses up, and call "
    "backward once, without retain_graph=True."
)


def may_be_shared(optimization: Optimization) -> bool:
    """Whether the line of the last backward may call others of its step, of which it is not known that each goes
    through a batch of its own: then all but the last may need the graph."""
    steps = optimization.steps
    several = steps["backwards"] > 1
    one_batch = several & ~(steps["microbatches"] >= steps["backwards"])
    return bool(one_batch.any()) and not _one_by_one(optimization)


def _one_by_one(optimization: Optimization) -> bool:
    """Whether as many lines as each step has backwards stand below each other in one block, and the last backward's is
    the lowest of them: then each calls one."""
    last, lines = optimization.backward_location, optimization.process.locations("backward")
    if last is None or {one.file_function for one in lines} != {last.file_function}:
        return False
    numbers, text = sorted({one.line for one in lines}), recorded_text.of_function(optimization.process, last)
    depth = recorded_text.indent_of(text.get(last.line, ""))
    between = [text.get(at) for at in range(numbers[0], last.line)]
    one_block = all(line is not None and (not line or recorded_text.indent_of(line) >= depth) for line in between)
    alike = all(recorded_text.indent_of(text.get(at, "")) == depth for at in numbers)
    each = bool((optimization.steps["backwards"] == len(numbers)).all())
    return each and one_block and alike and numbers[-1] == last.line


def of_several(optimization: Optimization) -> str:
    """The line that sums up, and the backward behind its loop, where one line calls all backwards of a step and these
    go through the same batch. Empty where each goes through a batch of its own, or lines of their own call them."""
    steps = optimization.steps
    known = steps.known("backwards") & steps.known("microbatches")
    shared = known & (steps["backwards"] > np.maximum(steps["microbatches"], 1))
    lines = {one.file_line for one in optimization.process.locations("backward")}
    if len(lines) > 1 or not known.any() or shared.sum() < known.sum() / 2:
        return ""
    own = own_statement.at(optimization.process, optimization.backward_location)
    call = own.only_call("backward") if own is not None and own.is_whole else None
    if own is None or call is None:
        return "total = sum(losses)  # of all that go through this graph\ntotal.backward()"
    function, loss = own.parsed.text_of(call.func), _loss(call)
    if loss is None:
        return ""
    part = own.parsed.text_of(loss) if isinstance(loss, ast.BinOp) else own.parsed.operand(loss)
    added = f"total = total + {part}  # in the loop; total = 0.0 above it"
    given = function.rpartition(".")[0] == own.parsed.text_of(loss)
    return f"{added}\n{'total.backward()' if given else f'{function}(total)'}  # behind the loop"


def _loss(call: ast.Call) -> ast.expr | None:
    """What the backward begins at: what the function is given, else what the method belongs to."""
    return call.args[0] if len(call.args) == 1 else getattr(call.func, "value", None) if not call.args else None
