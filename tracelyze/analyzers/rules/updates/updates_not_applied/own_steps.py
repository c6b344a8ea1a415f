"""What to change in the step of an optimizer that leaves parameters as they are."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.editing import parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine
    from tracelyze.diagnosis import Location

FIX: Final = (
    "Look at what the optimizer's step does with these tensors: an update of a copy (p = p - ... instead of "
    "p.sub_(...), or p.reshape(-1).sub_(...), where p is transposed and reshape has to copy it), a step that another "
    "wrapper replaced, weights that are copied back from elsewhere."
)
FIX_DROPPED: Final = (
    "Write the result into the parameter: a method without an underscore returns a new tensor, which is dropped there."
)
FIX_COPY: Final = (
    "Write the result into the parameter itself. reshape() and flatten() return a copy where the memory does not fit "
    "the new shape, as under channels_last; clone(), contiguous() and a change of type do so as well."
)
_SHAPES: Final = ("reshape", "flatten")
COPIES: Final = (*_SHAPES, "contiguous", "clone", "float", "double", "half", "bfloat16", "to")
AT_ZERO: Final = (
    " They are all zero, and an update in proportion to the size of the weights, as by the trust ratio of LARS and "
    "LAMB, is nothing for these; no gradient flows back through a weight of zero, either."
)
FIX_AT_ZERO: Final = (
    "In the optimizer's step use a trust ratio of 1 where the norm of the weights is zero, as LARS and LAMB do; or let "
    "these weights begin with small random numbers."
)
CODE_AT_ZERO: Final = (
    "trust = torch.where(p.norm() > 0, trust, 1.0)  # right behind the line that computes it; p: the parameter"
)
REACH: Final = (
    "Line {line} calls the step, and never ran: it stands behind a condition that was never true, or in a function "
    "that was not called. Have it run after backward(), whatever that condition is for."
)
HERE: Final = "in the optimizer's code"
_SUMS: Final = ("sub", "add", "addcdiv", "addcmul", "subtract")
_HANDED_OUT: Final = re.compile(  # `p.data.reshape(-1),`, of which nothing else is computed
    r"^(?:return\s+\(?\s*)?(?P<held>\w+(?:\.data)?)\.(?P<by>reshape|flatten)\((?:-1)?\)\s*(?:,|\)|$)"
)
_STEPS: Final = re.compile(r"\bopt\w*(?:\[[^\]]*\])?\.step\s*\(|\.step\s*\(\s*(?:self\.)?opt")  # or by a scaler


def held(count: int) -> str:
    """What makes it sure that a step should have changed these tensors."""
    if count > 1:
        known = "They have gradients, the optimizer holds them, and their learning rate is not zero"
        return f"{known}, but no step changes them."
    return "It has a gradient, the optimizer holds it, and its learning rate is not zero, but no step changes it."


def in_the_text(process: Process) -> Location | None:
    """The only line of the script that calls the step of an optimizer, as its name says; it need not have run."""
    lines = [one for one in process.locations("step-text") if _STEPS.search(one.source)]
    return lines[0] if len(lines) == 1 else None


def advice(made_anew: Location | None, at_zero: bool) -> tuple[str, str]:
    """Words and an example. `made_anew`: the line that makes a new tensor, written into the old one instead."""
    if at_zero:
        return FIX_AT_ZERO, CODE_AT_ZERO
    handed = _HANDED_OUT.search(made_anew.source) if made_anew is not None else None
    if made_anew is not None and handed is not None:
        held = handed["held"]
        where = f"flat: what line {made_anew.line} hands out; after the last line that changes it"
        return FIX_COPY, f"with torch.no_grad():\n    {held}.copy_(flat.reshape({held}.shape))  # {where}"
    line = parsed_line.of(made_anew)
    own = line.statement if line is not None else None
    named = _named_copy(made_anew)
    if line is not None and named is not None:
        name, made = named
        held = line.text_of(made.value)
        written = f"{held}.copy_({name}{f'.reshape({held}.shape)' * (made.attr in _SHAPES)})"
        code = f"with torch.no_grad():\n    {written}  # after the last line that changes {name}"
        return FIX_COPY, "" if held.split(".")[0] == name else code
    if line is not None and isinstance(own, ast.Assign) and isinstance(own.targets[0], ast.Name):
        return FIX, f"with torch.no_grad():\n    {own.targets[0].id}.copy_({line.text_of(own.value)})"
    dropped = _dropped(line)
    if line is not None and dropped is not None:
        return FIX_DROPPED, f"with torch.no_grad():\n    {line.with_parts({dropped: line.text_of(dropped) + '_'})}"
    copy = _copy(made_anew)
    if line is None or copy is None or not isinstance(own, ast.Expr):
        return FIX, ""  # what the step is to compute, and with which sign, is the script's own
    held, whole = line.text_of(copy.value), line.text_of(own.value)
    shape = f".reshape({held}.shape)" if copy.attr in _SHAPES else ""
    return FIX_COPY, f"with torch.no_grad():\n    {held}.copy_({whole}{shape})"


def doing(line: Location | None) -> str:
    """What such a line does instead of changing the parameter, behind "the only place that "."""
    handed = _HANDED_OUT.search(line.source) if line is not None else None
    if handed is not None:
        return f"hands {handed['held']} out by {handed['by']}(): where that is a copy, the parameter stays as it was"
    named = _named_copy(line)
    if named is not None:
        name, made = named
        return f"makes {name} by {made.attr}(), to change it: where that is a copy, the parameter stays as it was"
    if _dropped(parsed_line.of(line)) is not None:
        return "computes the new value and drops it: the method has no underscore"
    copy = _copy(line)
    if copy is None:
        return "gives the loop's variable a new tensor instead of changing it"
    return f"changes what {copy.attr}() returns: where that is a copy, the parameter stays as it was"


def _dropped(line: ParsedLine | None) -> ast.Attribute | None:
    """The method of a statement that is nothing but its call, `p.sub` in `p.sub(rate * p.grad)`."""
    own = line.statement if line is not None else None
    method = own.value.func if isinstance(own, ast.Expr) and isinstance(own.value, ast.Call) else None
    return method if isinstance(method, ast.Attribute) and method.attr in _SUMS else None


def _copy(place: Location | None) -> ast.Attribute | None:
    """What makes the copy that a statement changes in place, `p.reshape` in `p.reshape(-1).add_(update)`."""
    line = parsed_line.of(place)
    own = line.statement if line is not None else None
    changes = own.value.func if isinstance(own, ast.Expr) and isinstance(own.value, ast.Call) else None
    made = changes.value if isinstance(changes, ast.Attribute) and changes.attr.endswith("_") else None
    return made.func if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) else None


def _named_copy(place: Location | None) -> tuple[str, ast.Attribute] | None:
    """The name that a statement gives to what may be a copy, and what makes that: `flat`, `p.reshape` in
    `flat = p.reshape(-1)`. A statement that gives the parameter's own name a sum is none."""
    line = parsed_line.of(place)
    own = line.statement if line is not None else None
    if not isinstance(own, ast.Assign) or not isinstance(own.targets[0], ast.Name):
        return None
    calls = [one.func for one in ast.walk(own.value) if isinstance(one, ast.Call) and isinstance(own.value, ast.Call)]
    made = [one for one in calls if isinstance(one, ast.Attribute) and one.attr in COPIES]
    return (own.targets[0].id, made[-1]) if made else None


def rebound(process: Process, defined: Location | None) -> Location | None:
    """The only line of the optimizer's own step, `defined` there, that gives the variable of its loop a new value, or
    changes a copy of it; else the only one beside it that hands such a copy out."""
    if defined is None:
        return None
    lines = [one for one in process.locations("rebound") if one.file == defined.file and one.line > defined.line]
    if lines:
        return lines[0] if len(lines) == 1 else None
    apart = [one for one in process.locations("handed-out") if one.file == defined.file]
    apart = [one for one in apart if _HANDED_OUT.search(one.source)]
    return apart[0] if len(apart) == 1 else None
