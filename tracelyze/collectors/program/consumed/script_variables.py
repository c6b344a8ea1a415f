"""The variables of the functions of the script that run, few of them, without keeping alive what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

from tracelyze.collectors.internals.local_variables import borrowed
from tracelyze.collectors.program.call_sites import is_library

MAX_FRAMES, MAX_DEPTH = 4, 60  # functions of the script, and frames in all
MAX_VARIABLES = 300  # of one function, or attributes of one object


def of_script(frame: FrameType | None) -> Iterator[tuple[Mapping[str, Any], CodeType]]:
    """The variables of each such function by name, the innermost first, for the time of one turn."""
    functions = 0
    for _ in range(MAX_DEPTH):
        if frame is None or functions >= MAX_FRAMES:
            break
        if not is_library(frame.f_code.co_filename):
            functions += 1
            if frame.f_code.co_name == "<module>":
                yield frame.f_globals, frame.f_code
            else:
                with borrowed(frame) as variables:
                    yield variables, frame.f_code
        frame = frame.f_back


def attributes(value: Any) -> list[tuple[Any, Any]]:
    """What an object holds under names of its own, without running code of its class."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:  # one with slots
        return []
    return list(held.items())[:MAX_VARIABLES] if type(held) is dict else []
