"""The collector's frames, taken out of the tracebacks of exceptions that pass through it.

A wrapper that catches an exception finds its own frame at the front of the traceback. It takes it away and raises on
with a bare `raise`, which adds none. To enter a `try` costs nothing; the exception's cause, its context and the line
numbers of all other frames stay what they are.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, TypeVar

COLLECTORS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
PACKAGE = os.path.dirname(os.path.dirname(COLLECTORS)) + os.sep

Wrapper = TypeVar("Wrapper", bound=Callable[..., Any])


def leave_no_frame(error: BaseException) -> None:
    """To be called by a wrapper that has caught `error`, before its bare `raise`."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    error.__traceback__ = trace


def hide_own_frames(error: BaseException | None, seen: set[int] | None = None) -> None:
    """Take all our frames out of the traceback of an exception that nobody caught, and of those that it was caused by.

    Wrappers take their own away. Those of a generator, say, or of a function that is called as the program ends, stay.
    """
    seen = set() if seen is None else seen
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        leave_no_frame(error)
        trace = error.__traceback__
        while trace is not None:
            while trace.tb_next is not None and _is_ours(trace.tb_next):
                trace.tb_next = trace.tb_next.tb_next
            trace = trace.tb_next
        hide_own_frames(error.__context__, seen)
        error = error.__cause__


def unseen_by_warnings(function: Wrapper) -> Wrapper:
    """The function, in a file of a name that `warnings` passes over when it counts callers, like those of importlib.

    torch warns with `stacklevel=2` and more. With a wrapper between them the warning must still have the line and the
    module of the script, so that filters such as `error:::__main__` work as before.
    """
    code: CodeType = getattr(function, "__code__")  # noqa: B009  # of a callable, mypy does not know that it has one
    setattr(function, "__code__", code.replace(co_filename=f"{code.co_filename} (as importlib._bootstrap)"))  # noqa: B010
    return function


def answer_as_original(wrapper: Any) -> None:
    """Have `inspect.getfullargspec` and the attributes for defaults tell of `wrapper` what they tell of the original.

    Only a function without parameters of its own can be given the defaults of another: Python fills in none of them.
    """
    original = getattr(wrapper, "__wrapped__", None)
    if not isinstance(wrapper, FunctionType) or not isinstance(original, FunctionType):
        return
    if not wrapper.__code__.co_filename.startswith(COLLECTORS) or "__signature__" in vars(original):
        return
    if hasattr(original, "__wrapped__"):  # a wrapper of torch's, which takes *args and **kwargs as ours do
        return
    wrapper.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    if wrapper.__code__.co_argcount == wrapper.__code__.co_kwonlyargcount == 0:
        wrapper.__defaults__, wrapper.__kwdefaults__ = original.__defaults__, original.__kwdefaults__


def _is_ours(trace: Any) -> bool:
    return str(trace.tb_frame.f_code.co_filename).startswith(COLLECTORS)
