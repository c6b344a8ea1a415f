"""Variables of a function that is under way, and attributes of an object, without keeping alive what they hold."""

from __future__ import annotations

import contextlib
import dis
import functools
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

_OPTIMIZED = 0x1  # inspect.CO_OPTIMIZED: the code of a function
_READERS = frozenset(("locals", "vars", "dir", "exec"))  # they share one dictionary with us before Python 3.13


@contextlib.contextmanager
def borrowed(frame: FrameType) -> Iterator[Mapping[str, Any]]:
    """The variables by name, for the time of the `with`; none of what is no function.

    Before Python 3.13 the frame would keep the copy of them that it makes here, and so keep alive what the function
    deletes. So the copy is emptied, and there is none where the program, or a debugger, may have it as well. It is left
    as it is where a profile function is set, such as our own that may have called this: Python writes the copy back
    into the frame when that function returns, and an empty one would unset variables, those of closures for good.
    """
    code = frame.f_code
    if not code.co_flags & _OPTIMIZED or sys.gettrace() is not None or _reads_its_variables(code):
        yield {}
        return
    written_back = sys.getprofile() is not None
    variables = frame.f_locals
    try:
        yield variables
    finally:
        if not written_back and isinstance(variables, dict):
            variables.clear()


def first_argument(frame: FrameType) -> Any:
    """The first argument of the function that runs, which is `self` in a method; None where it is not read."""
    code = frame.f_code
    with borrowed(frame) as variables:
        return variables.get(code.co_varnames[0]) if code.co_argcount else None


def attributes(owner: Any) -> dict[str, Any]:
    """What an object holds under names of its own. Nothing of its class runs: one may compute its attributes, or load
    what it stands for; and what programs put among the modules need not be one."""
    try:
        held = object.__getattribute__(owner, "__dict__")
    except AttributeError:  # one with slots
        return {}
    return held if type(held) is dict else {}


def _reads_its_variables(code: CodeType) -> bool:
    """Whether the function may read its variables as a dictionary: `eval` does, and the method of modules does not."""
    return bool(_READERS.intersection(code.co_names)) or ("eval" in code.co_names and _calls_eval(code))


@functools.lru_cache(maxsize=512)
def _calls_eval(code: CodeType) -> bool:
    return any(one.opname == "LOAD_GLOBAL" and one.argval == "eval" for one in dis.get_instructions(code))
