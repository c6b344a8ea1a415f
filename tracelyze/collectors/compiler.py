"""Keeps torch.compile away from our functions.

After a graph break torch.compile meets what runs next, our functions among it, as frames of their own. It is to pass
them by, as it does with torch's own files, instead of compiling them: wrappers alone, the rest with all that it calls.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any


def hide(torch: Any, wrappers: Iterable[Any], methods: Iterable[Any]) -> None:
    """Have torch.compile pass by `wrappers`, but not what they call, and `methods` with all that they call.

    torch before 2.7 cannot skip what a function calls: all functions of this package are marked there, one by one.
    Raises AttributeError where this torch has neither way, or another one.
    """
    frames = torch._C._dynamo.eval_frame  # what torch._dynamo.eval_frame wraps; importing that takes a second
    if hasattr(frames, "set_code_exec_strategy"):
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
        for function, within in [*((w, default) for w in wrappers), *((m, skip) for m in methods)]:
            frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, within))
    else:
        for function in wrappers:
            frames.skip_code(function.__code__)
        for code in _all_code():
            frames.skip_code(code)


def _all_code() -> Iterator[types.CodeType]:
    """The code of all functions of tracelyze that are loaded, of their methods and of what decorators have wrapped."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "tracelyze":
            continue
        for value in list(vars(module).values()):
            for function in vars(value).values() if isinstance(value, type) else (value,):
                yield from _of(getattr(function, "fget", None) or function)


def _of(function: Any) -> Iterator[types.CodeType]:
    while str(getattr(function, "__module__", None)).partition(".")[0] == "tracelyze":
        code = getattr(function, "__code__", None)
        if isinstance(code, types.CodeType):
            yield from _within(code)
        function = getattr(function, "__wrapped__", None)


def _within(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code and that of the functions, comprehensions and generators in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _within(constant)
