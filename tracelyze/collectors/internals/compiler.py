"""Keeps torch.compile away from our functions.

After a graph break torch.compile meets what runs next, our functions among it, as frames of their own. It is to pass
them by, as it does with torch's own files, instead of compiling them: wrappers alone, the rest with all that it calls.
"""

from __future__ import annotations

import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tracelyze.collectors.internals import private_names

wrappers: list[Any] = []
"""Functions of ours in the place of the program's: a hook that puts one there adds it here, and torch.compile passes it
by."""


class _Asks:
    """Stands in for `torch.compiler` where that has no flag to read."""

    def __init__(self, torch: Any) -> None:
        self._ask = torch.compiler.is_compiling

    @property
    def _is_compiling_flag(self) -> bool:
        return bool(self._ask())


def flag(torch: Any) -> Any:
    """What has `_is_compiling_flag`: whether torch traces or exports, of which torch.compile's own tracing is a part.

    `torch.compiler.is_compiling` reads it after two calls, which in a step of a millisecond cost more than the reading.
    """
    *_, name = private_names.COMPILING.split(".")
    is_read = name in getattr(getattr(torch.compiler.is_compiling, "__code__", None), "co_names", ())
    known = private_names.find(torch, private_names.COMPILING) is not None
    return torch.compiler if known and is_read else _Asks(torch)


def hide(torch: Any, functions: Iterable[Any], methods: Iterable[Any]) -> None:
    """Have torch.compile pass by `functions`, but not what they call, and `methods` with all that they call.

    torch before 2.7 cannot skip what a function calls: all functions of this package are marked there, one by one.
    """
    frames = private_names.find(torch, private_names.FRAMES)  # importing torch._dynamo, which wraps it, takes a second
    if hasattr(frames, "set_code_exec_strategy"):
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
        for function, within in [*((f, default) for f in functions), *((m, skip) for m in methods)]:
            frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, within))
        return
    mark = frames.skip_code if hasattr(frames, "skip_code") else _publicly(torch)
    for code in (*(function.__code__ for function in functions), *_all_code()):
        mark(code)


def _publicly(torch: Any) -> Callable[[types.CodeType], None]:
    """The documented way, which marks the code of a function."""

    def mark(code: types.CodeType) -> None:
        cells = tuple(types.CellType() for _ in code.co_freevars)
        torch.compiler.disable(types.FunctionType(code, {}, closure=cells), recursive=False)

    return mark


def _all_code() -> Iterator[types.CodeType]:
    """The code of all functions of tracelyze that are loaded, of their methods and of what decorators have wrapped."""
    for name, module in sys.modules.copy().items():  # in one go: another thread may import
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


class StepHooks(OrderedDict[int, Any]):
    """Hooks of all optimizers, without `ours` for who compiles, where ours does nothing.

    Since Python 3.13 the loop over the hooks that precede a step compiles to bytecode in which torch._dynamo loses
    track of the `with` around it: with any hook there, it gives up on the whole function that holds the loop.
    """

    ours: Any = None
    in_dynamo: Any = None

    def values(self) -> Any:
        """The hooks, in order."""
        if self.in_dynamo():
            return [hook for hook in super().values() if hook is not self.ours]
        return _values(self)


_values = OrderedDict.values


def hide_step_hook(torch: Any, home: Any, ours: Any) -> None:
    """Have `ours` unseen among the hooks that precede steps, in the module `home`, where it would be in the way."""
    hooks = getattr(home, "_global_optimizer_pre_hooks", None)
    if sys.version_info >= (3, 13) and type(hooks) is OrderedDict:
        home._global_optimizer_pre_hooks = unseen = StepHooks(hooks)
        unseen.ours, unseen.in_dynamo = ours, torch.compiler.is_dynamo_compiling
