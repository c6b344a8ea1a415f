"""A Python list or dictionary of layers in the container of torch that registers them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing.parsed_line import name_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Location

_CONTAINERS: Final = {ast.List: "ModuleList", ast.ListComp: "ModuleList", ast.Dict: "ModuleDict"}
_BELOW: Final = re.compile(r"\bsuper\(.*\)\.__init__\(")
_HOME: Final = re.compile(r"(?<![\w.])((?:torch\.)?nn)\.[A-Z]\w*\(")


def listed(process: Process, made: Location) -> Location:
    """The only line that fills a list or dictionary with what the function of this line returns, where that makes one
    layer (`self.experts = [self.expert(width) for _ in range(4)]`); else the line that makes the layers."""
    if not made.source.startswith("return ") or not made.function.isidentifier():
        return made
    called = re.compile(rf"^\s*self\.\w+\s*(?:(?::[^=]+)?=\s*[\[{{].*|\.append\(.*)(?<!\w){made.function}\(")
    lines = [one for one in recorded_text.matching(process, called) if one.file == made.file]
    return lines[0] if len(lines) == 1 else made


def said(made: Location, place: Location) -> str:
    """What a line does with layers, so far as it shows. `made`: it makes them; `place`: as :func:`listed` gives it."""
    if made.source.startswith("return ") and place is made:
        return f"Line {made.line} makes layers that a Python list or dictionary keeps, where torch does not find them."
    return f"Line {place.line} puts layers into a Python list or dictionary, where torch does not find them."


def text(process: Process, own: OwnStatement, place: Location, maker: str = "") -> str:
    """The assignment of a list or dictionary, each entry of which is the call of a class, or of the function `maker`
    that returns a layer; empty for anything else, where the file's name for torch.nn is not known, and above the call
    that makes an object a module."""
    statement = own.parsed.statement
    value = statement.value if isinstance(statement, ast.Assign) else None
    container = _CONTAINERS.get(type(value)) if value is not None else None
    entries = _entries(value)
    lines = recorded_text.of_function(process, place)
    early = any(at > own.line and _BELOW.search(line) for at, line in lines.items())
    if value is None or container is None or early or not entries or not all(_makes(one, maker) for one in entries):
        return ""
    homes = {found[1] for line in recorded_text.of_file(process, place.file).values() for found in _HOME.finditer(line)}
    homes |= {found[1] for found in _HOME.finditer(own.text)}
    return (
        own.parsed.with_parts({value: f"{homes.pop()}.{container}({own.parsed.text_of(value)})"})
        if len(homes) == 1
        else ""
    )


def _entries(value: ast.expr | None) -> list[ast.expr]:
    if isinstance(value, ast.Dict):
        named = all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in value.keys)
        return value.values if named else []
    if isinstance(value, ast.ListComp):
        return [value.elt]
    return value.elts if isinstance(value, ast.List) else []


def _makes(entry: ast.expr, maker: str) -> bool:
    """Whether an entry is the call of what is named as classes are: no pair of layers, and nothing that was made."""
    return isinstance(entry, ast.Call) and (name_of(entry.func)[:1].isupper() or name_of(entry.func) == maker != "")
