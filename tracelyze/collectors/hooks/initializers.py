"""Where weights are filled with random numbers: the functions of `torch.nn.init`, which modules use as well."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from tracelyze.collectors.internals.compiler import wrappers
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings

RANDOM = (
    "uniform_",
    "normal_",
    "trunc_normal_",
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "orthogonal_",
    "sparse_",
)


class _Depth(threading.local):
    calls = 0  # under way on this thread: a mode for torch functions (`with torch.device(...)`) calls them once more


def install(torch: Any, filled: Callable[[Any], None]) -> None:
    """Wrap them. `filled(tensor)` is called after each."""
    home, depth, is_compiling = torch.nn.init, _Depth(), torch.compiler.is_compiling
    for name in RANDOM:
        original = getattr(home, name, None)
        if original is not None:
            setattr(home, name, _fill(original, filled, depth, is_compiling))


def _fill(
    original: Callable[..., Any], filled: Callable[[Any], None], depth: _Depth, is_compiling: Callable[[], bool]
) -> Callable[..., Any]:
    @unseen_by_warnings
    @functools.wraps(original)
    def fill(*args: Any, **kwargs: Any) -> Any:
        depth.calls += 1
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        finally:
            depth.calls -= 1
        if not depth.calls and not is_compiling():
            filled(args[0] if args else kwargs.get("tensor"))
        return result

    wrappers.append(fill)
    return fill
