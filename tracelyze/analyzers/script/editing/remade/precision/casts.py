"""The script's own statement that makes weights 16-bit numbers, with float32 in place of that type."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Location

_FLOAT32: Final = "torch.float32"
_SHORT: Final = ("bfloat16", "half")  # methods, and types as torch names them
_TYPES: Final = (*_SHORT, "float16")
_NAMED: Final = ("dtype", "torch_dtype")
_LOADS: Final = "from_pretrained"
_LOADED_OTHERWISE: Final = ("quantization_config", "load_in_8bit", "load_in_4bit")
_NAMES_TYPE: Final = re.compile(r"(?<!device_)type|precision|float|half|bf16|fp16", re.IGNORECASE)


def to_float32(process: Process, place: Location | None) -> str:
    """The statement with the one cast in it made to float32; empty where it has none, or several."""
    own = own_statement.at(process, place)
    if own is None or not own.is_whole:
        return ""
    parts: dict[ast.expr, str] = {}
    for call in own.parsed.calls(*_SHORT):
        if isinstance(call.func, ast.Attribute) and not call.args and not call.keywords:
            parts[call] = f"{own.parsed.operand(call.func.value)}.float()"
    if not parts:
        parts = _cast_alone(own) or dict.fromkeys(_types(own.parsed), _FLOAT32)
    if not parts:
        return own.dedented(_loaded_as(own))
    return own.dedented(own.parsed.with_parts(parts)) if len(parts) == 1 else ""


def given_by(process: Process, cast: Location | None) -> Location | None:
    """The only line of the script that names a type of 16 bits, where it hands that to a call, and the cast is to a
    parameter of the function that it stands in: `self.model = model.to(dtype)`."""
    own = own_statement.at(process, cast)
    to = own.only_call("to") if own is not None else None
    given = to.args[0] if to is not None and len(to.args) == 1 and not to.keywords else None
    lines = [one for one in process.locations("sixteen") if "autocast" not in one.source]
    if cast is None or not isinstance(given, ast.Name) or len({one.file_line for one in lines}) != 1:
        return None
    heads = [text for text in recorded_text.of_function(process, cast).values() if text.lstrip().startswith("def ")]
    named = own_statement.at(process, lines[0])
    calls = [one for one in ast.walk(named.parsed.tree) if isinstance(one, ast.Call)] if named is not None else []
    handed = [one for call in calls for one in _handed(call, given)]
    is_parameter = any(re.search(rf"[(,]\s*{given.id}\b", head) for head in heads)
    return lines[0] if is_parameter and len(handed) == 1 and lines[0].file_function != cast.file_function else None


def _handed(call: ast.Call, parameter: ast.Name) -> list[ast.expr]:
    """The types of 16 bits that a call is given, by place or by the name of this parameter."""
    values = [*call.args, *(one.value for one in call.keywords if one.arg == parameter.id)]
    return [one for one in values if isinstance(one, ast.Attribute) and one.attr in _TYPES]


def _cast_alone(own: OwnStatement) -> dict[ast.expr, str]:
    """`x = x.to(config.dtype)`, whose only argument is the type by what it is called, and not a device."""
    to = own.only_call("to")
    if to is None or not isinstance(to.func, ast.Attribute) or len(to.args) != 1 or to.keywords:
        return {}
    is_type = _NAMES_TYPE.search(parsed_line.name_of(to.args[0])) is not None
    return {to: f"{own.parsed.operand(to.func.value)}.float()"} if is_type else {}


def _loaded_as(own: OwnStatement) -> str:
    """A load by from_pretrained that says no type, and so keeps the file's, as transformers does since version 5. Empty
    of any other statement: PEFT's takes the model that it loads into first."""
    call = own.only_call(_LOADS)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if call is None or owner is None or parsed_line.name_of(owner).startswith("Peft"):
        return ""
    if any(one.arg in _LOADED_OTHERWISE for one in call.keywords):
        return ""
    return own.with_argument((_LOADS,), "dtype", _FLOAT32)


def _types(parsed: parsed_line.ParsedLine) -> list[ast.expr]:
    """Where the statement says a type of 16 bits, or gives any under a type's name."""
    given = [one.value for one in ast.walk(parsed.tree) if isinstance(one, ast.keyword) and one.arg in _NAMED]
    named = [one for one in ast.walk(parsed.tree) if isinstance(one, ast.Attribute) and one.attr in _TYPES]
    return given or [one for one in named if parsed_line.name_of(one.value) == "torch"]
