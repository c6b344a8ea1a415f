"""A validation that puts one model into eval mode, and calls another one, which stays in train mode."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement, parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_EVAL: Final = re.compile(r"(?P<name>[A-Za-z_][\w.]*)\.eval\(\s*\)$")
_NO_MODELS: Final = ("float", "int", "len", "list", "tuple", "dict", "enumerate", "zip", "range", "next", "iter", "max")


class Another(NamedTuple):
    """`place`: the line that calls eval(), of the model `named`; `called`: the one that line `at` evaluates."""

    place: Location
    named: str
    called: str
    at: int


def of(process: Process, evaluates: Location | None) -> Another | None:
    """Where the only eval() of the function that evaluates is above the line which calls the model, in the same block
    or one around it, and of something that this line does not mention. Names do not tell that two things are one, so
    this is for a model that was seen in train mode."""
    own = own_statement.at(process, evaluates)
    if own is None or evaluates is None:
        return None
    called = model_of(own.parsed)
    lines = [one for one in process.locations("eval-mode") if one.file_function == evaluates.file_function]
    found = _EVAL.match(code_of(lines[0].source).strip()) if len(lines) == 1 else None
    if found is None or not called or lines[0].line >= own.line or not _encloses(process, lines[0], evaluates):
        return None
    name = found["name"]
    if re.search(rf"(?<![\w.]){re.escape(name)}\b", own.text) or is_function(process, called):
        return None
    return Another(lines[0], name, called, evaluates.line)


def is_function(process: Process, called: str) -> bool:
    """Whether lines of the script are known to stand in a function of this name: it calls a model in its turn."""
    name = called.rpartition(".")[2]
    return any(str(row["function"]).rpartition(".")[2] == name for row in process.tables["sites"].records())


def _encloses(process: Process, place: Location, evaluates: Location) -> bool:
    """Whether a line runs each time before one further down: nothing between is less indented."""
    text = recorded_text.around(process, evaluates)
    between = [text.get(number) for number in range(place.line, evaluates.line + 1)]
    if any(one is None for one in between):
        return False
    depths = [recorded_text.indent_of(one) for one in between if one and one.strip()]
    return min(depths) == depths[0]


def model_of(line: parsed_line.ParsedLine) -> str:
    """What the statement calls to get an output: of its calls that hold no other call the only one of a name, or of an
    attribute of self. Empty where there are several."""
    calls = [node for node in ast.walk(line.tree) if isinstance(node, ast.Call)]
    innermost = [one for one in calls if not any(other is not one for other in ast.walk(one) if other in calls)]
    names = [line.text_of(one.func) for one in innermost if isinstance(one.func, ast.Name | ast.Attribute)]
    names = [one for one in names if re.fullmatch(r"[A-Za-z_]\w*|self(?:\.\w+)+", one) and one not in _NO_MODELS]
    return names[0] if len(names) == 1 else ""
