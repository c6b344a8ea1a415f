"""Windows of micro-batches that are shorter or longer than what losses are divided by, and the lines that mend them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

_COUNTS: Final = re.compile(r"\s*(?:el)?if\b.*[\w)\]]\s*%\s*[\w(]")
_BEHIND: Final = "# behind the backward"
_STEP: Final = "    optimizer.step()\n    optimizer.zero_grad()"


def short(optimization: Optimization, usual: float) -> tuple[str, str, str]:
    """What makes windows short, the fix and its code."""
    why = "Skipped batches are still counted, or something else also triggers the optimizer step."
    fix = "Count backwards, not batches: step after exactly as many as the losses are divided by."
    place, by = counted(optimization), _divisor(optimization, usual)
    text = by[0].parsed.text_of(by[1]) if by is not None else ""
    number = text if place is not None and text and f"% {text} " in place.source else f"{usual:.0f}"
    code = f"count = 0  # before the first backward, and wherever gradients are cleared\n\ncount += 1  {_BEHIND}\n"
    if place is None:
        return why, fix, f"{code}if count == {number}:\n{_STEP}\n    count = 0\n"
    return why, fix, f"{code}if count == {number}:  # in place of line {place.line}\n    ...  # what stands below it\n"


def long(optimization: Optimization, usual: float, begin_epochs: bool) -> tuple[str, str, str]:
    """What makes windows long, the fix and its code."""
    if not begin_epochs:
        _, fix, code = short(optimization, usual)
        return "Some batches are skipped, and with them the step that was due.", fix, code
    why = "They are the first of an epoch: gradients left over from the previous epoch were not cleared."
    code = (
        f"size = min({usual:.0f}, len(loader) - i // {usual:.0f} * {usual:.0f})\n{_divided(optimization, usual)}\n"
        f"if (i + 1) % {usual:.0f} == 0 or i + 1 == len(loader):\n{_STEP}"
    )
    return why, "Also step at the end of each epoch, dividing by the batches left, or clear the gradients there.", code


def counted(optimization: Optimization) -> Location | None:
    """The condition that decides at which batches the optimizer steps, `if (i + 1) % 4 == 0:`, right above its step."""
    step = optimization.step_location
    lines = recorded_text.of_function(optimization.process, step) if step is not None else {}
    if step is None or step.line not in lines:
        return None
    depth = recorded_text.indent_of(lines[step.line])
    above = (at for at in sorted(lines, reverse=True) if at < step.line and lines[at].strip())
    head = next((at for at in above if recorded_text.indent_of(lines[at]) < depth), None)
    if head is None or not _COUNTS.match(lines[head]) or any(at not in lines for at in range(head, step.line)):
        return None
    return step.at(head, lines[head])


def _divided(optimization: Optimization, usual: float) -> str:
    """The statement that divides the loss, by the size of its own window; in words where it is not known."""
    by = _divisor(optimization, usual)
    if by is None:
        return f"# the loss is divided by size, in place of {usual:.0f}"
    return by[0].dedented(by[0].parsed.with_parts({by[1]: "size"}))


def _divisor(optimization: Optimization, usual: float) -> tuple[OwnStatement, ast.expr] | None:
    """The statement that divides the loss, and what it divides it by."""
    process = optimization.process
    for place in (optimization.loss_location, optimization.backward_location, *process.locations("loss")):
        own = own_statement.at(process, place)
        nodes = list(ast.walk(own.parsed.tree)) if own is not None and own.is_whole else []
        by = [node.right for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)]
        by = [one for one in by if isinstance(one, ast.Name | ast.Attribute) or _is(one, usual)]
        if own is not None and len(by) == 1:
            return own, by[0]
    return None


def _is(node: ast.expr, number: float) -> bool:
    return isinstance(node, ast.Constant) and node.value == number
