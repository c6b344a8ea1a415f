"""The script's own line with one call of it changed: a softmax over another dimension, a copy, the terms of a loss."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.editing.parsed_line import is_function_of_torch, name_of
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_SOFTMAXES: Final = ("softmax", "log_softmax", "Softmax", "LogSoftmax")
_INDICES: Final = ("randint", "randperm", "arange", "choice", "permutation", "integers", "range")
_COMPILES: Final = re.compile(r"\btorch\.compile\b")
_DECORATES: Final = re.compile(r"@torch\.compile(?:\(\))?")
_MOST: Final = 4  # terms that a line can show


def softmax_along(process: Process, place: Location | None, dimension: int) -> str:
    """The softmax over this dimension, whatever the line says it runs over; empty where it has none, or several."""
    own = own_statement.at(process, place)
    call = own.only_call(*_SOFTMAXES) if own is not None else None
    if own is None or call is None or not own.is_whole:
        return ""
    first = 1 if is_function_of_torch(call.func) and name_of(call.func).endswith("softmax") else 0
    changed = own.parsed.with_argument(call, "dim", str(dimension), first)
    return own.dedented(changed) if changed else ""


def copied(process: Process, place: Location | None) -> str:
    """Arrays as tensors of their own: what from_numpy returns, copied. Empty where the line has no such call."""
    own = own_statement.at(process, place)
    calls = own.parsed.calls("from_numpy") if own is not None else []
    parts: dict[ast.expr, str] = {one: f"{own.parsed.text_of(one)}.clone()" for one in calls} if own else {}
    return own.dedented(own.parsed.with_parts(parts)) if own is not None and parts and own.is_whole else ""


def terms(process: Process, loss: Location | None) -> str:
    """What a statement adds up, printed term by term; empty where it adds up nothing, or much."""
    own = own_statement.at(process, loss)
    made = own.parsed.statement if own is not None else None
    parts = _added(made.value) if isinstance(made, ast.Assign) else []
    if own is None or not 1 < len(parts) <= _MOST:
        return ""
    shown = ", ".join(f"{own.parsed.operand(one)}.item()" for one in parts if not isinstance(one, ast.Constant))
    return f"print({shown})  # the terms of the loss, as they are added up"


def _added(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub):
        return [*_added(value.left), *_added(value.right)]
    return [value]


def chosen_by_where(process: Process, place: Location | None) -> str:
    """`if c: h = a` as `h = torch.where(c, a, h)`; empty where the block holds more, or has another branch."""
    lines = recorded_text.around(process, place) if place is not None else {}
    head = parsed_line.of(place)
    test = head.statement.test if head is not None and isinstance(head.statement, ast.If) else None
    if place is None or head is None or test is None:
        return ""
    depth = recorded_text.indent_of(lines.get(place.line, ""))
    body = lines.get(place.line + 1, "")
    after = next((text for at, text in sorted(lines.items()) if at > place.line + 1 and text.strip()), "")
    own = parsed_line.parse(body.strip())
    made = own.statement if own is not None else None
    target = made.targets[0] if isinstance(made, ast.Assign) and len(made.targets) == 1 else None
    ends = recorded_text.indent_of(after) <= depth and not after.strip().startswith(("else", "elif"))
    if own is None or not isinstance(made, ast.Assign) or not isinstance(target, ast.Name) or not ends:
        return ""
    condition = re.sub(r"\.item\(\)", "", head.text_of(test))
    chosen = f"{target.id} = torch.where({condition}, {own.text_of(made.value)}, {target.id})"
    return f"{chosen}  # in place of line {place.line}"


def compiled(process: Process, place: Location | None) -> str:
    """How to find every break, and the line at which one is without it, where that only chooses between values or keeps
    one for later."""
    chosen = chosen_by_where(process, place) or _kept_as_tensor(process, place)
    whole = f"{_compiling(process)}  # raises at any break that is left"
    return f"{whole}\n{chosen}" if chosen else whole


def _compiling(process: Process) -> str:
    """The only line that compiles, with fullgraph=True; of a decorator as well. A model where none, or another form, is
    known."""
    made = recorded_text.matching(process, _COMPILES)
    own = own_statement.at(process, made[0]) if len(made) == 1 else None
    text = own.with_argument(("compile",), "fullgraph", "True") if own is not None and own.is_whole else ""
    if own is not None and text:
        return own.dedented(text)
    if len(made) == 1 and _DECORATES.fullmatch(code_of(made[0].source).strip()):
        return "@torch.compile(fullgraph=True)\ndef compiled(*inputs):  # your own function, as it is\n    ..."
    return "model = torch.compile(model, fullgraph=True)"


def _kept_as_tensor(process: Process, place: Location | None) -> str:
    """The line that keeps a number of the model in an attribute or a container, with the tensor in its place; empty for
    another one, whose number Python may need right there."""
    own = own_statement.at(process, place)
    made = own.parsed.statement if own is not None else None
    if own is None or place is None or not isinstance(made, ast.Assign) or len(made.targets) != 1:
        return ""
    value, stored = made.value, isinstance(made.targets[0], ast.Attribute | ast.Subscript)
    if not stored or not isinstance(value, ast.Call) or value.keywords or "\n" in own.text:
        return ""
    if isinstance(value.func, ast.Attribute) and value.func.attr == "item" and not value.args:
        tensor: ast.expr = value.func.value
    elif isinstance(value.func, ast.Name) and value.func.id == "float" and len(value.args) == 1:
        tensor = value.args[0]
    else:
        return ""
    text = own.dedented(own.parsed.with_parts({value: f"{own.parsed.operand(tensor)}.detach()"}))
    return f"{text}  # in place of line {place.line}: its .item() where that is read, outside"


def named(code: str, process: Process, place: Location | None) -> str:
    """An example about `x`, by the name that the line gives to what it reads, or that a loop has for its first part."""
    own = own_statement.at(process, place)
    if own is None or own.parsed.calls(*_INDICES):
        return code
    statement = own.parsed.statement
    target = statement.target if isinstance(statement, ast.For) else None
    target = statement.targets[0] if isinstance(statement, ast.Assign) else target
    if isinstance(target, ast.Tuple) and target.elts:
        target = target.elts[0]
    return re.sub(r"\bx\b", target.id, code) if isinstance(target, ast.Name) else code
