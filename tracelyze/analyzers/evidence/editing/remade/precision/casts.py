"""The script's own statement that makes weights 16-bit numbers, with float32 in place of that type."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence.editing import own_statement, parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_FLOAT32: Final = "torch.float32"
_SHORT: Final = ("bfloat16", "half")  # methods, and types as torch names them
_TYPES: Final = (*_SHORT, "float16")
_NAMED: Final = ("dtype", "torch_dtype")


def to_float32(process: Process, place: Location | None) -> str:
    """The statement with the one cast in it made to float32; empty where it has none, or several."""
    own = own_statement.at(process, place)
    if own is None or not own.is_whole:
        return ""
    parts: dict[ast.expr, str] = {}
    for call in own.parsed.calls(*_SHORT):
        if isinstance(call.func, ast.Attribute) and not call.args and not call.keywords:
            parts[call] = f"{own.parsed.operand(call.func.value)}.float()"
    to = own.only_call("to")
    if not parts and to is not None and isinstance(to.func, ast.Attribute) and len(to.args) == 1 and not to.keywords:
        return _cast_alone(own, to, to.func)
    if not parts:
        parts = dict.fromkeys(_types(own.parsed), _FLOAT32)
    return own.dedented(own.parsed.with_parts(parts)) if len(parts) == 1 else ""


def _cast_alone(own: own_statement.OwnStatement, to: ast.Call, method: ast.Attribute) -> str:
    """`x = x.to(config.dtype)`, whose only argument is the type: a device would not make 16-bit numbers of weights."""
    return own.dedented(own.parsed.with_parts({to: f"{own.parsed.operand(method.value)}.float()"}))


def _types(parsed: parsed_line.ParsedLine) -> list[ast.expr]:
    """Where the statement says a type of 16 bits, or gives any under a type's name."""
    given = [one.value for one in ast.walk(parsed.tree) if isinstance(one, ast.keyword) and one.arg in _NAMED]
    named = [one for one in ast.walk(parsed.tree) if isinstance(one, ast.Attribute) and one.attr in _TYPES]
    return given or [one for one in named if parsed_line.name_of(one.value) == "torch"]
