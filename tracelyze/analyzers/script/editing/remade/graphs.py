"""The script's own statement with the way of the gradient left open, or with an update that leaves no graph."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import is_operand, name_of
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_MADE: Final = ("tensor", "as_tensor")
_LEFT_OUT: Final = "Leave out line {line}: what it is made of has the gradient that it takes away."
_JOIN: Final = (
    "Keep the tensors that the model gave, and join them by functions that have a gradient: stack, sum, mean."
)
_JOINED: Final = (
    "If what {them} is a part of the loss, join the tensors by a function that has a gradient, such as torch.stack."
)
_NUMBERS: Final = " Take the numbers (.item()) only for what is printed."
_SEVERAL: Final = ("list", "tuple")
_OPEN: Final = "Take the detach() out of line {line}, where it stands on the way from these parameters to the loss."
_CUT: Final = (
    "Line {line} cuts the graph. If it stands on the way from these parameters to the loss, compute that part outside "
    "of it, with autograd on."
)
_SKETCH: Final = "loss = torch.stack(terms).sum()   # instead of torch.tensor(terms, requires_grad=True).sum()"


def of_tensors(process: Process, place: Location | None) -> tuple[str, str]:
    """Words and an example for a line that makes a tensor out of numbers: the tensors that these were, joined."""
    own = own_statement.at(process, place)
    call = own.only_call(*_MADE) if own is not None else None
    if own is None or place is None or call is None or not call.args:
        return _JOIN, _SKETCH
    given = call.args[0]
    text = re.sub(r"\.item\(\)|\.detach\(\)", "", own.parsed.text_of(given))
    several = isinstance(given, ast.Call) and name_of(given.func) in _SEVERAL
    if (several or isinstance(given, ast.List | ast.Name | ast.ListComp)) and text == own.parsed.text_of(given):
        return _JOIN + _NUMBERS, own.dedented(own.parsed.with_parts({call: f"torch.stack({text})"}))
    if several or isinstance(given, ast.List | ast.ListComp):
        return _JOIN, own.dedented(own.parsed.with_parts({call: f"torch.stack({text})"}))
    whole = isinstance(own.parsed.statement, ast.Assign) and own.parsed.statement.value is call
    if whole and text == ast.unparse(own.parsed.statement.targets[0]):  # type: ignore[attr-defined]
        return _LEFT_OUT.format(line=place.line), ""
    held = text if whole or is_operand(given) else f"({text})"
    return _JOIN, own.dedented(own.parsed.with_parts({call: held}))


def of_numbers(process: Process) -> tuple[str, str, str, Location] | None:
    """What the lines do that make tensors of numbers read from tensors with graphs, words and an example, and the first
    of these lines; None where they are not known."""
    lines = script_lines.of_numbers(process)
    if not lines:
        return None
    one = len(lines) == 1
    which = f"Line {lines[0].line} makes" if one else f"Lines {listed([at.line for at in lines], len(lines))} make"
    what = "a tensor of the numbers" if one else "tensors of the numbers"
    said = f" {which} {what} in tensors with a graph, and leave{'s' * one} the graph behind."
    return (
        said,
        _JOINED.format(them="that line gives" if one else "those lines give"),
        _stacked(process, lines),
        lines[0],
    )


def _stacked(process: Process, lines: list[Location]) -> str:
    """The lines with the tensors joined; empty where one of them is not known as a whole."""
    made = []
    for line in lines:
        own = own_statement.at(process, line)
        call = own.only_call("tensor", "as_tensor", "Tensor", "FloatTensor") if own is not None else None
        given = call.args[0] if call is not None and call.args else None
        if own is None or call is None or not isinstance(given, ast.Name | ast.Attribute | ast.List | ast.ListComp):
            return ""
        text = re.sub(r"\.item\(\)|\.detach\(\)", "", own.parsed.text_of(given))
        made.append(own.dedented(own.parsed.with_parts({call: f"torch.stack({text})"})))
    return "\n".join(made)


def uncut(process: Process, place: Location) -> tuple[str, str]:
    """Words and an example for a line that cuts a graph: the same without its detach()."""
    own = own_statement.at(process, place)
    calls = own.parsed.calls("detach") if own is not None else []
    if own is None or len(calls) != 1 or calls[0].args or not isinstance(calls[0].func, ast.Attribute):
        return _CUT.format(line=place.line), ""
    held = own.parsed.text_of(calls[0].func.value)
    made = own.parsed.statement
    alone = isinstance(made, ast.Assign) and made.value is calls[0] and ast.unparse(made.targets[0]) == held
    code = "" if alone else own.dedented(own.parsed.with_parts({calls[0]: held}))
    return _OPEN.format(line=place.line), code


def updated_in_place(process: Process, place: Location | None) -> str:
    """`w -= rate * w.grad` under no_grad in place of `w = w - rate * w.grad`; empty for any other line."""
    own = own_statement.at(process, place)
    made = own.parsed.statement if own is not None else None
    if own is None or not isinstance(made, ast.Assign) or not isinstance(made.value, ast.BinOp):
        return ""
    name, value = ast.unparse(made.targets[0]), made.value
    sign = "-" if isinstance(value.op, ast.Sub) else "+" if isinstance(value.op, ast.Add) else ""
    if not sign or ast.unparse(value.left) != name:
        return ""
    step = own.parsed.text_of(value.right)
    return f"with torch.no_grad():\n    {name} {sign}= {step}\n{name}.grad = None  # unless an optimizer clears it"
