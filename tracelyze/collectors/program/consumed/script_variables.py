"""The variables of the functions of the script that run, few of them, without keeping alive what they hold."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

from tracelyze.collectors.internals.local_variables import attributes, borrowed
from tracelyze.collectors.program.call_sites import script_frames

MAX_FRAMES, MAX_DEPTH = 4, 60  # functions of the script, and frames in all
MAX_VARIABLES = 300  # of one function, or attributes of one object


def of_script(frame: FrameType | None) -> Iterator[tuple[Mapping[str, Any], CodeType]]:
    """The variables of each such function by name, the innermost first, for the time of one turn."""
    for one in itertools.islice(script_frames(frame, MAX_DEPTH), MAX_FRAMES):
        if one.f_code.co_name == "<module>":
            yield one.f_globals, one.f_code
        else:
            with borrowed(one) as variables:
                yield variables, one.f_code


def some_attributes(value: Any) -> list[tuple[Any, Any]]:
    """The first attributes of an object, by their names."""
    return list(attributes(value).items())[:MAX_VARIABLES]
