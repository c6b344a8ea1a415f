"""How many rounds a `for` over `range` is written for, read off the bytecode of a function that is under way.

The variables that the arguments name are looked up, and nothing of the program runs: integers under plain names, in
attributes and dictionaries, the lengths of lists, tensors and arrays, and what `+`, `-`, `*` and `//` make of them.
Anything else stays unknown.
"""

from __future__ import annotations

import dis
import sys
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from tracelyze.collectors.internals.local_variables import borrowed
from tracelyze.collectors.program.lines.instructions import by_line

_DROPPED: Final = ("PRECALL", "PUSH_NULL", "CACHE", "GET_ITER")
_CALLS: Final = ("CALL", "CALL_FUNCTION", "CALL_METHOD")
_NAMES: Final = ("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF")
_LONGEST_ARGUMENTS: Final = (
    24  # instructions: `range(0, len(config["train"]["rows"]) // batch_size * batch_size, size)`
)
_SEQUENCES: Final = (list, tuple, dict, range, str)


class RangeLoop(NamedTuple):
    """First and last line of a loop, the name of its variable, and what makes the arguments of its `range`."""

    line: int
    last: int
    variable: str
    arguments: list[dis.Instruction]

    def rounds(self, frame: FrameType) -> int | None:
        """The rounds of this loop of the function that `frame` runs; None where an argument is not known."""
        names = {str(one.argval) for one in self.arguments if one.opname in _NAMES}
        try:
            values = _values(self.arguments, _variables(frame, names))
        except _Unknown:
            return None
        if not 1 <= len(values) <= 3 or any(type(one) is not int for one in values) or 0 in values[2:]:
            return None
        return len(range(*values))


class _Unknown(Exception):  # noqa: N818  # it is none
    """An argument is no integer that can be looked up."""


class _Callee(NamedTuple):
    """A function of Python's or torch's that says how long something is: `len`, and `size` of a tensor."""

    holder: Any = None


def of_function(code: CodeType) -> list[RangeLoop]:
    """The loops over `range` of a function, by their lines."""
    found: list[RangeLoop] = []
    lines = [pair for pair in by_line(code) if pair[1].opname not in ("CACHE", "EXTENDED_ARG")]
    instructions = [one for _, one in lines]
    for index, (line, one) in enumerate(lines[:-1]):
        if one.opname != "FOR_ITER":
            continue
        stored = instructions[index + 1]
        arguments = _of_range(instructions[:index])
        if arguments is not None and stored.opname.startswith("STORE"):
            last = max((there for start, _, there in code.co_lines() if there and start < one.argval), default=line)
            found.append(RangeLoop(line, last, str(stored.argval), arguments))
    return found


def _of_range(before: list[dis.Instruction]) -> list[dis.Instruction] | None:
    """The instructions between `range` and its call, if that is what the loop iterates."""
    arguments: list[dis.Instruction] = []
    for one in reversed(before[-_LONGEST_ARGUMENTS - 2 * len(_DROPPED) :]):
        if one.argval == "range" and one.opname in _NAMES:
            return arguments[:0:-1] if arguments and arguments[0].opname in _CALLS else None
        if one.opname not in _DROPPED:
            arguments.append(one)
    return None


def _values(arguments: list[dis.Instruction], variables: dict[str, Any]) -> list[Any]:
    stack: list[Any] = []
    for one in arguments:
        if one.opname == "LOAD_CONST":
            stack.append(one.argval)
        elif one.opname in _NAMES:
            stack.append(_variable(str(one.argval), variables))
        elif one.opname in ("LOAD_ATTR", "LOAD_METHOD") and stack:
            stack.append(_attribute(stack.pop(), str(one.argval)))
        elif one.opname in _CALLS and type(one.arg) is int and len(stack) > one.arg:
            given = [stack.pop() for _ in range(one.arg)]
            stack.append(_length(stack.pop(), given))
        elif one.opname == "BINARY_SUBSCR" and len(stack) > 1:
            key, holder = stack.pop(), stack.pop()
            stack.append(_item(holder, key))
        elif one.opname == "BINARY_OP" and len(stack) > 1:
            right, left = stack.pop(), stack.pop()
            stack.append(_computed(one.argrepr, left, right))
        else:
            raise _Unknown
    return stack


def _variable(name: str, variables: dict[str, Any]) -> Any:
    if name in variables:
        return variables[name]
    if name == "len":
        return _Callee()
    raise _Unknown


def _item(holder: Any, key: Any) -> Any:
    if type(holder) is dict and type(key) is str and key in holder:
        return holder[key]
    if isinstance(holder, tuple) and type(key) is int and -len(holder) <= key < len(holder):
        return tuple.__getitem__(holder, key)
    raise _Unknown


def _computed(operator: str, left: Any, right: Any) -> int:
    if type(left) is not int or type(right) is not int:
        raise _Unknown
    if operator == "//" and right:
        return left // right
    if operator in ("+", "-", "*"):
        return left + right if operator == "+" else left - right if operator == "-" else left * right
    raise _Unknown


def _length(callee: Any, given: list[Any]) -> int:
    """What `len(given)` or `holder.size(given)` answers, where that runs nothing of the program."""
    if type(callee) is not _Callee or len(given) != 1:
        raise _Unknown
    if callee.holder is not None:
        return int(_item(callee.holder, given[0]))
    if type(given[0]) in _SEQUENCES:
        return len(given[0])
    shape = _shape(given[0])
    if not shape:
        raise _Unknown
    return int(shape[0])


def _shape(holder: Any) -> tuple[int, ...] | None:
    """The sizes of a tensor or an array; None if it is neither."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    plain = [getattr(torch, "Tensor", None), getattr(numpy, "ndarray", None)]
    return tuple(int(size) for size in holder.shape) if any(type(holder) is one for one in plain) else None


def _attribute(holder: Any, name: str) -> Any:
    """What an object, or its class, holds under a name, without running anything of either."""
    shape = _shape(holder) if name in ("shape", "size") else None
    if shape is not None:
        return shape if name == "shape" else _Callee(shape)
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
