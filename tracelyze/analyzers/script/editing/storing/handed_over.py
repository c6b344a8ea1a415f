"""The line of the loop that hands a tensor to a method which keeps it, as a meter that is given numbers elsewhere."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

_FREED: Final = re.compile(r"\b(?:item|detach|float|int|len|tolist|numpy)\(|\bno_grad\b")
_OBJECT: Final = re.compile(r"(?:\w+\.)*[A-Z]\w*[a-z]\w*\(")  # `Net(3)`; and not `F.mse_loss(out, y)`


class HandedOver(NamedTuple):
    """A call in the function of the backward, and the name of the tensor that it hands over."""

    place: Location
    name: str

    @property
    def told(self) -> str:
        """A sentence, behind one that says what keeps a tensor."""
        return f" The tensor comes from line {self.place.line}: {self.name}."

    @property
    def instead(self) -> str:
        """What else to do, behind what to do where the tensor is kept."""
        return f" Or hand over {self.name}.detach() in line {self.place.line}."


def to(optimization: Optimization, kept: Location | None) -> HandedOver | None:
    """The only call of the function of a line, in that of the backward, whose argument is a name for what a call made
    there; all other calls hand over numbers."""
    backward = optimization.backward_location
    if kept is None or backward is None or not kept.function.isidentifier() or kept.function == backward.function:
        return None
    if not _keeps_what_it_is_given(optimization.process, kept):
        return None
    text = recorded_text.of_function(optimization.process, backward)
    found = []
    for number, line in sorted(text.items()):
        parsed = parsed_line.parse(line.strip())
        for call in parsed.calls(kept.function) if parsed is not None else ():
            given = [*call.args, *(one.value for one in call.keywords)]
            if all(_is_number(one, text) for one in given):
                continue
            given = [one for one in given if not isinstance(one, ast.Constant)]  # the name of a curve beside its value
            if len(given) != 1 or not isinstance(given[0], ast.Name) or not _made(given[0].id, text):
                return None
            found.append(HandedOver(backward.at(number, line), given[0].id))
    return found[0] if len(found) == 1 else None


def _keeps_what_it_is_given(process: Process, kept: Location) -> bool:
    """Whether what is kept there is what the method is given, as far as its lines tell, and nothing that the method
    computes of it, such as the output of a model: `self.history.append(self.drift(model))`."""
    parsed = parsed_line.parse(kept.source)
    made = parsed.statement if parsed is not None else None
    value = getattr(made, "value", None)
    within = value.args if isinstance(made, ast.Expr) and isinstance(value, ast.Call) else [value]
    nodes = [node for one in within if one is not None for node in ast.walk(one)]
    every = [one for one in nodes if isinstance(one, ast.Call)]
    numbers = [one for one in every if _FREED.match(f"{ast.unparse(one.func)}(")]
    calls = [one for one in every if one not in numbers]
    aside = {id(node) for one in numbers for node in ast.walk(one)}
    names = {one.id for one in nodes if isinstance(one, ast.Name) and id(one) not in aside}
    lines = recorded_text.of_function(process, kept)
    above = [line for at, line in lines.items() if at < kept.line]
    computed = any(re.match(rf"\s*{re.escape(name)}\b[^=(]*=(?!=)", line) for name in names for line in above)
    return bool(nodes) and not computed and not any(one.args or one.keywords or _is_of_self(one.func) for one in calls)


def _is_of_self(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and ast.unparse(function.value) == "self"


def _is_number(node: ast.expr, text: dict[int, str]) -> bool:
    """Whether an argument is none with a graph, as far as the text says."""
    values = _values(node.id, text) if isinstance(node, ast.Name) else [ast.unparse(node)]
    freed = bool(values) and all(_FREED.search(one) and not _is_made_of_others(one, text) for one in values)
    return isinstance(node, ast.Constant) or freed


def _made(name: str, text: dict[int, str]) -> bool:
    """Whether a call made it in a single line, and nothing there takes its graph off; no call that makes an object."""
    values = _values(name, text)
    if len(values) != 1 or "(" not in values[0] or _OBJECT.match(values[0]):
        return False
    return not _FREED.search(values[0]) or _is_made_of_others(values[0], text)


def _is_made_of_others(value: str, text: dict[int, str]) -> bool:
    """Whether a call is given a name for what a call made with a graph, beside something that is detached:
    `F.l1_loss(flipped, restored.detach())`."""
    parsed = parsed_line.parse(value)
    call = getattr(parsed.statement, "value", None) if parsed is not None else None
    if not isinstance(call, ast.Call) or _FREED.search(f"{ast.unparse(call.func)}("):
        return False
    names = [_values(one.id, text) for one in call.args if isinstance(one, ast.Name)]
    return any(len(one) == 1 and "(" in one[0] and not _FREED.search(one[0]) for one in names)


def _values(name: str, text: dict[int, str]) -> list[str]:
    given = re.compile(rf"\s*{re.escape(name)} = (?P<value>.+)")
    return [found["value"] for line in text.values() if (found := given.match(line))]
