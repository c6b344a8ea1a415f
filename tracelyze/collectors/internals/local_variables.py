"""The variables of a function that is under way, without keeping alive what they hold."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

_OPTIMIZED = 0x1  # inspect.CO_OPTIMIZED: the code of a function
_READERS = frozenset(("locals", "vars", "dir", "eval", "exec"))  # they share one dictionary with us before Python 3.13


@contextlib.contextmanager
def borrowed(frame: FrameType) -> Iterator[Mapping[str, Any]]:
    """The variables by name, for the time of the `with`; none of what is no function.

    Before Python 3.13 the frame would keep the copy of them that it makes here, and so keep alive what the function
    deletes. So the copy is emptied, and there is none where the program, or a debugger, may have it as well. It is left
    as it is where a profile function is set, such as our own that may have called this: Python writes the copy back
    into the frame when that function returns, and an empty one would unset variables, those of closures for good.
    """
    code = frame.f_code
    if not code.co_flags & _OPTIMIZED or sys.gettrace() is not None or _READERS.intersection(code.co_names):
        yield {}
        return
    written_back = sys.getprofile() is not None
    variables = frame.f_locals
    try:
        yield variables
    finally:
        if not written_back and isinstance(variables, dict):
            variables.clear()
