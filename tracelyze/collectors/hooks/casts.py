"""Where the weights of a module are made 16-bit numbers: `to`, `half` and `bfloat16`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tracelyze.collectors.internals.compiler import wrappers
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings
from tracelyze.collectors.program.call_sites import is_library

_METHODS = ("to", "half", "bfloat16")


def install(torch: Any, cast: Callable[[Any], None]) -> None:
    """Wrap the methods. `cast(frame)` is called after each cast to 16 bits, with the frame that asked for it."""
    owner, in_dynamo, short = torch.nn.Module, torch.compiler.is_dynamo_compiling, (torch.float16, torch.bfloat16)
    owner.half, owner.bfloat16 = _always(owner.half, in_dynamo, cast), _always(owner.bfloat16, in_dynamo, cast)
    owner.to = _to(owner.to, in_dynamo, cast, short)
    wrappers.extend((owner.half, owner.bfloat16, owner.to))


def _asked(frame: FrameType | None) -> FrameType | None:
    """Who asked for a cast: not the method of a library's own kind of module that passes it on."""
    while frame is not None and frame.f_code.co_name in _METHODS and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _always(original: Callable[..., Any], in_dynamo: Callable[[], bool], cast: Callable[[Any], None]) -> Any:
    @unseen_by_warnings
    @functools.wraps(original)
    def short(self: Any) -> Any:
        try:
            result = original(self)
        except BaseException as error:
            leave_no_frame(error)
            raise
        if not in_dynamo():
            cast(_asked(sys._getframe(1)))
        return result

    return short


def _to(
    original: Callable[..., Any], in_dynamo: Callable[[], bool], cast: Callable[[Any], None], short: tuple[Any, ...]
) -> Any:
    @unseen_by_warnings
    @functools.wraps(original)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        if not in_dynamo() and any(one is dtype for one in (*args, *kwargs.values()) for dtype in short):
            cast(_asked(sys._getframe(1)))
        return result

    return to
