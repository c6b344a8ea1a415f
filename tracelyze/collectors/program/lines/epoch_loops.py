"""How many epochs the loop of a script is written for: the argument of `range` in `for epoch in range(epochs)`.

It is read off the bytecode of the functions that are under way, and off the variables that it names, whose values are
looked up and never computed: nothing of the program runs. What is not an integer under a plain name stays unknown.
"""

from __future__ import annotations

import dis
import re
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from tracelyze.collectors.internals.local_variables import borrowed
from tracelyze.collectors.program.lines.named_calls import LONGEST

EPOCH: Final = re.compile(r"^(?:\w*_)?ep(?:och)?s?(?:_?(?:i|idx|index|num|no|n|number))?$|^_?e$", re.IGNORECASE)
_CALLS: Final = ("PRECALL", "CALL", "CALL_FUNCTION", "PUSH_NULL", "CACHE", "GET_ITER")
_NAMES: Final = ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF")
_CONSTANTS: Final = ("LOAD_CONST", "LOAD_SMALL_INT")
_LONGEST_ARGUMENTS: Final = 12  # instructions: `range(start, config["train"]["epochs"])`


class EpochLoop(NamedTuple):
    """The line of a `for`, and the rounds that it is written for."""

    line: int
    planned: int


class _Unknown(Exception):  # noqa: N818  # it is none
    """An argument is no integer under a plain name."""


def around(frame: FrameType) -> EpochLoop | None:
    """The innermost loop over epochs around the line that `frame` is at."""
    code = frame.f_code
    if len(code.co_code) > LONGEST:
        return None
    found = [one for one in _loops(code) if one[0] <= frame.f_lineno <= one[1]]
    for line, _, arguments in reversed(found):
        planned = _planned(frame, arguments)
        if planned is not None:
            return EpochLoop(line, planned)
    return None


def _loops(code: CodeType) -> list[tuple[int, int, list[dis.Instruction]]]:
    """First and last line of each loop over `range` by a variable named after epochs, and what makes the arguments."""
    found: list[tuple[int, int, list[dis.Instruction]]] = []
    instructions = [one for one in dis.get_instructions(code) if one.opname not in ("CACHE", "EXTENDED_ARG")]
    line = code.co_firstlineno
    for index, one in enumerate(instructions[:-1]):
        line = (one.positions.lineno if one.positions is not None else None) or line
        if one.opname != "FOR_ITER":
            continue
        stored = instructions[index + 1]
        variable = stored.argval[0] if type(stored.argval) is tuple else stored.argval
        arguments = _of_range(instructions[:index])
        if arguments is not None and stored.opname.startswith("STORE") and EPOCH.match(str(variable)):
            last = max((there for start, _, there in code.co_lines() if there and start < one.argval), default=line)
            found.append((line, last, arguments))
    return found


def _of_range(before: list[dis.Instruction]) -> list[dis.Instruction] | None:
    """The instructions between `range` and its call, if that is what the loop iterates."""
    arguments: list[dis.Instruction] = []
    for one in reversed(before[-_LONGEST_ARGUMENTS - len(_CALLS) :]):
        if one.argval == "range" and one.opname in _NAMES:
            return arguments[::-1]
        if one.opname not in _CALLS:
            arguments.append(one)
    return None


def _planned(frame: FrameType, arguments: list[dis.Instruction]) -> int | None:
    """The rounds of range with these arguments, where they are integers that can be looked up."""
    names = {str(one.argval) for one in arguments if one.opname in _NAMES}
    try:
        values = _values(arguments, _variables(frame, names))
    except _Unknown:
        return None
    if not 1 <= len(values) <= 3 or any(type(one) is not int for one in values) or 0 in values[2:]:
        return None
    return len(range(*values))


def _values(arguments: list[dis.Instruction], variables: dict[str, Any]) -> list[Any]:
    stack: list[Any] = []
    for one in arguments:
        if one.opname in _CONSTANTS:
            stack.append(one.argval)
        elif one.opname in _NAMES and one.argval in variables:
            stack.append(variables[one.argval])
        elif one.opname in ("LOAD_ATTR", "LOAD_METHOD") and stack:
            stack.append(_attribute(stack.pop(), str(one.argval)))
        elif (one.opname == "BINARY_SUBSCR" or one.argrepr == "[]") and len(stack) > 1:
            key, holder = stack.pop(), stack.pop()
            if type(holder) is not dict or type(key) is not str or key not in holder:
                raise _Unknown
            stack.append(holder[key])
        else:
            raise _Unknown
    return stack


def _attribute(holder: Any, name: str) -> Any:
    """What an object, or its class, holds under a name, without running anything of either."""
    kind = type(holder)
    places = [holder, *type.__getattribute__(holder, "__mro__")] if issubclass(kind, type) else [holder, *kind.__mro__]
    for place in places:
        get = type.__getattribute__ if issubclass(type(place), type) else object.__getattribute__
        try:
            held = get(place, "__dict__")
        except AttributeError:
            continue
        if name in held:
            return held[name]
    raise _Unknown


def _variables(frame: FrameType, names: set[str]) -> dict[str, Any]:
    """The values of these names: of the function, else of its file."""
    with borrowed(frame) as variables:
        own = {name: variables[name] for name in names if name in variables}
    return {name: frame.f_globals[name] for name in names if name in frame.f_globals} | own
