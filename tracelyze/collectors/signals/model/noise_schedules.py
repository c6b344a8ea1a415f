"""How many steps of noise a program has: the length of its schedule, by the names of what its functions hold.

Only names, shapes and dictionaries of attributes are read: no property of the program runs, and nothing is kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from tracelyze.collectors.internals.local_variables import borrowed
from tracelyze.collectors.program.call_sites import is_library

NAMED = re.compile(r"alpha|beta|sigma|(?<![a-z])a_?bar|snr", re.IGNORECASE)
SHORTEST = 20  # steps: what is shorter may be anything
FRAMES, VARIABLES = 4, 300  # functions of the program that are looked into, and variables of each


def lengths(model: Any) -> set[int]:
    """Lengths of all schedules that the model, the functions that called it, and their objects hold."""
    found: set[int] = set()
    for module in model.modules():
        found |= set(_named(module._buffers.items()))
    frame: FrameType | None = sys._getframe(1)
    looked = 0
    while frame is not None and looked < FRAMES:
        if not is_library(frame.f_code.co_filename):
            if not looked:
                found |= _of(frame.f_globals)
            looked += 1
            with borrowed(frame) as variables:
                found |= _of(variables)
        frame = frame.f_back
    return found


def _of(variables: Any) -> set[int]:
    held = [(name, value) for name, value in list(variables.items())[:VARIABLES] if isinstance(name, str)]
    found = set(_named(held))
    for _, value in held:
        own = getattr(type(value), "__dictoffset__", 0) and not isinstance(value, type) and type(value) is not _MODULE
        attributes = object.__getattribute__(value, "__dict__") if own else None
        if isinstance(attributes, dict):
            found |= set(_named(list(attributes.items())[:VARIABLES]))
            buffers = attributes.get("_buffers")
            found |= set(_named(list(buffers.items()))) if isinstance(buffers, dict) else set()
    return found


_MODULE = type(sys)


def _named(pairs: Iterable[tuple[Any, Any]]) -> Iterator[int]:
    """Lengths of tensors and arrays with one dimension that have the name of a schedule."""
    for name, value in pairs:
        if isinstance(name, str) and NAMED.search(name) and type(value).__name__ in ("Tensor", "ndarray"):
            shape = value.shape
            if len(shape) == 1 and shape[0] >= SHORTEST and "float" in str(value.dtype):
                yield int(shape[0])
