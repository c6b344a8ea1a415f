"""Whether a loop gives its model what the loader made, or makes something else of it on the way."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_names, parsed_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_MOVES: Final = frozenset(
    "to cuda cpu float double half bfloat16 view reshape flatten unsqueeze squeeze permute contiguous transpose".split()
)
"""Methods that leave every value as it is, but for its rounding."""


def unchanged(process: Process, calls: Iterable[Location]) -> bool | None:
    """Whether each of these lines, which call the model, gives it a plain name that nothing in its function computes;
    None where the lines do not tell."""
    answers = [_unchanged(process, call) for call in calls]
    if not answers or None in answers:
        return None if False not in answers else False
    return all(answers)


def _unchanged(process: Process, call: Location) -> bool | None:
    parsed, model = parsed_line.of(call), own_names.model_at(process, call)
    if parsed is None or not model:
        return None
    called = [one for one in ast.walk(parsed.tree) if isinstance(one, ast.Call) and ast.unparse(one.func) == model]
    if len(called) != 1 or not called[0].args:
        return None
    given = _moved(called[0].args[0])
    if not isinstance(given, ast.Name):
        return isinstance(given, ast.Subscript) or None if not _computes(given) else False
    name, text = given.id, recorded_text.of_file(process, call.file)
    made = re.compile(rf"(?:^|;|, )\s*{name}(?:,[^=]*)?\s*(?P<kind>[-+*/@]?=)(?!=)\s*(?P<value>.*)")
    for number in range(call.line - 1, 0, -1):
        line = text.get(number)
        if line is None:
            return None
        line = line.split("#")[0].strip()
        if re.match(rf"(?:async )?for .*\b{name}\b.* in |(?:async )?def .*\b{name}\b", line):
            return True
        found = made.search(line)
        if found is not None and (found["kind"] != "=" or _computed(found["value"])):
            return False
    return None


def _computed(value: str) -> bool:
    parsed = parsed_line.parse(value.strip().rstrip(";"))
    expression = parsed.statement.value if parsed is not None and isinstance(parsed.statement, ast.Expr) else None
    parts = expression.elts if isinstance(expression, ast.Tuple) else [expression]
    return any(part is None or _computes(_moved(part)) for part in parts)


def _moved(value: ast.expr) -> ast.expr:
    """What is handed to a device, cast or reshaped."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES:
        value = value.func.value
    return value


def _computes(value: ast.expr) -> bool:
    """Whether an expression is more than a name, an attribute or a part of one."""
    return not isinstance(value, ast.Name | ast.Attribute | ast.Subscript)
