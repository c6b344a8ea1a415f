"""Activation checkpointing in the reentrant way, where nothing that goes in needs a gradient.

Nothing comes out with one then, whatever the parameters inside.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final

from tracelyze.collectors.internals.compiler import wrappers
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings
from tracelyze.collectors.system.program_signals import own_errors_dropped

HOME: Final = "torch.utils.checkpoint"
MOST: Final = 200  # such calls that are told of: those of some steps


def install(torch: Any, in_vain: Callable[[Any], None]) -> None:
    """Wrap the function that all ways of reentrant checkpointing go through, but for those of other libraries.
    `in_vain` is given the function that is checkpointed."""
    kind = getattr(sys.modules.get(HOME), "CheckpointFunction", None)
    original = getattr(kind, "apply", None)
    if kind is None or original is None:
        return
    told = 0

    @unseen_by_warnings
    @functools.wraps(original)
    def apply(*args: Any) -> Any:
        nonlocal told
        with own_errors_dropped:
            if told < MOST and torch.is_grad_enabled() and not any(map(needs_gradient, args)):
                told += 1
                in_vain(args[0] if args else None)
        try:
            return original(*args)
        except BaseException as error:
            leave_no_frame(error)
            raise

    def needs_gradient(given: Any) -> bool:
        return isinstance(given, torch.Tensor) and given.requires_grad

    kind.apply = staticmethod(apply)
    wrappers.append(apply)
