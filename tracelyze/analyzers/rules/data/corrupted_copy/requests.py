"""What a statement leaves under way: which requests it holds, and which buffers they fill."""

from __future__ import annotations

import ast
from typing import Final, NamedTuple

from tracelyze.analyzers.rules.data.corrupted_copy import early_reads
from tracelyze.analyzers.rules.data.corrupted_copy.functions import elements_of
from tracelyze.analyzers.script.editing.parsed_line import is_function_of_torch, name_of

_VIEWS: Final = frozenset(
    (
        "detach",
        "view",
        "view_as",
        "reshape",
        "flatten",
        "squeeze",
        "unsqueeze",
        "transpose",
        "permute",
        "requires_grad_",
    )
)


class Begun(NamedTuple):
    """What is under way: the expression that holds the requests, the one that holds the buffers, and what of its
    elements is filled (`.grad`); `many`: whether these are lists. `call`: what begins one request of a list that is
    filled one by one, for one buffer."""

    works: str
    buffers: str
    part: str
    many: bool
    receives: bool
    line: int
    call: str = ""


def begun(statement: ast.stmt, line: int) -> Begun | None:
    """What a statement begins: `works = [irecv(b) for b in buffers]`, a loop that adds to `works`, or one request,
    which may be added to others."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        works, value = ast.unparse(statement.targets[0]), statement.value
        if isinstance(value, ast.ListComp) and len(value.generators) == 1 and not value.generators[0].ifs:
            made = value.generators[0]
            return _of_many(works, value.elt, made.target, made.iter, [], line)
        filled = _filled(value)
        if filled is not None and isinstance(filled, ast.Name | ast.Attribute):
            return Begun(works, ast.unparse(filled), "", False, name_of(_call(value).func) == "irecv", line)
    one = _added(statement) if isinstance(statement, ast.Expr) else None
    filled = _filled(one[1]) if one is not None else None
    if one is not None and isinstance(filled, ast.Name | ast.Attribute):
        call, receives = ast.unparse(one[1]), name_of(_call(one[1]).func) == "irecv"
        return Begun(one[0], ast.unparse(filled), "", False, receives, line, call)
    if isinstance(statement, ast.For):
        added = [_added(one) for one in statement.body]
        for works, value in (one for one in added if one is not None):
            if _filled(value) is not None:
                beside = [one for one in added if one is not None and one[0] != works]
                return _of_many(works, value, statement.target, statement.iter, beside, line)
    return None


def _call(value: ast.expr) -> ast.Call:
    assert isinstance(value, ast.Call)
    return value


def _filled(value: ast.expr) -> ast.expr | None:
    """What an irecv, or a collective with async_op=True, fills."""
    if not isinstance(value, ast.Call):
        return None
    at_once = {one.arg: one.value for one in value.keywords}
    is_async = isinstance(at_once.get("async_op"), ast.Constant) and ast.unparse(at_once["async_op"]) == "True"
    if name_of(value.func) != "irecv" and not is_async:
        return None
    return value.args[0] if value.args else at_once.get("tensor")


def _added(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """The list, and what is appended to it or put into it."""
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        return ast.unparse(statement.targets[0].value), statement.value
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append" and call.args:
        return ast.unparse(call.func.value), call.args[0]
    return None


def _of_many(
    works: str, value: ast.expr, target: ast.expr, over: ast.expr, beside: list[tuple[str, ast.expr]], line: int
) -> Begun | None:
    """Requests of all elements of one list; None where it may be some of them."""
    filled = _filled(value)
    if filled is None:
        return None
    receives, part = name_of(_call(value).func) == "irecv", ""
    while isinstance(filled, ast.Attribute):
        part, filled = f".{filled.attr}{part}", filled.value
    if isinstance(filled, ast.Subscript) and not part:
        counts = isinstance(over, ast.Call) and name_of(over.func) == "range" and len(over.args) == 1
        if counts and ast.unparse(filled.slice) == ast.unparse(target):
            return Begun(works, ast.unparse(filled.value), "", True, receives, line)
        return None
    if not isinstance(filled, ast.Name):
        return None
    kept = [name for name, one in beside if isinstance(one, ast.Name) and one.id == filled.id]
    buffers = elements_of(target, over).get(filled.id) or (kept[0] if len(kept) == 1 else None)
    return Begun(works, buffers, part, True, receives, line) if buffers else None


def element_of(node: ast.AST, own: Begun, elements: dict[str, str]) -> str | None:
    """The index of a buffer, or what stands for it; None where this is none of them."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS:
        node = node.func.value
    if not isinstance(node, ast.expr):
        return None
    if not own.many:
        return "" if ast.unparse(node) == own.buffers else None
    text = ast.unparse(node)
    if own.part:
        if not text.endswith(own.part):
            return None
        text, node = text.removesuffix(own.part), ast.parse(text.removesuffix(own.part), mode="eval").body
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == own.buffers:
        return ast.unparse(node.slice)
    return "" if isinstance(node, ast.Name) and elements.get(text) == own.buffers else None


def needed(statement: ast.AST, own: Begun, elements: dict[str, str]) -> str | None:
    """The index of a buffer whose values a statement needs."""
    places: list[ast.AST] = [statement.target] if isinstance(statement, ast.AugAssign) else []
    for node in ast.walk(statement):
        if isinstance(node, ast.BinOp):
            places += [node.left, node.right]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, of_torch = node.func.attr, is_function_of_torch(node.func)
            if not of_torch and name in early_reads.READS:
                places.append(node.func.value)
            if name == "copy_" or (of_torch and name in early_reads.READS | early_reads.TAKES):
                places += node.args
    found = (element_of(place, own, elements) for place in places)
    return next((index for index in found if index is not None), None)


def given(statement: ast.stmt, own: Begun, elements: dict[str, str]) -> str | None:
    """The index of a buffer that a call is given as it is."""
    given = [one for node in ast.walk(statement) if isinstance(node, ast.Call) for one in node.args]
    found = (element_of(one, own, elements) for one in given)
    return next((index for index in found if index is not None), None)
