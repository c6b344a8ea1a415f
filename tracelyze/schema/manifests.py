"""The JSON files of a run directory: the types of those fields that the reader relies on.

A field that is not declared here is only ever shown as text. Null always means "not known".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal

FieldType = Literal["text", "count", "number", "words"]
"""`count`: a whole number from 0 to 2**53. `words`: a text, or a list of anything, such as a command line."""

Shape = Mapping[str, "FieldType | Shape"]
"""The types of an object's fields, themselves objects where there is a Shape. EACH stands for every name."""

EACH: Final = "*"

RUN: Final[Shape] = {
    "command": "words",
    "started_at": "text",
    "obstacle": "text",
    "host": "text",
    "job": "text",
    "git": {"commit": "text"},
    "source": {"left_out": "words", "live": "words"},
}

PROCESS: Final[Shape] = {
    "pid": "count",
    "boot_id": "text",
    "pid_namespace": "text",
    "host": "text",
    "rank": "count",
    "attempt": "count",
    "thread": "count",
    "thread_name": "text",
    "world_size": "count",
    "launcher": "text",
    "started_at": "text",
    "clock": {"zero": "number"},
    "argv": "words",
    "command": "words",
    "cpus": "number",
    "backwards": "count",
    "host_memory_bytes": "number",
    "device": {"memory_bytes": "number"},
    "environment": {},
    "versions": {},
    "framework": {},
    "signals": {
        EACH: {
            "state": "text",
            "reason": "text",
            "columns": "words",
            "seconds": "number",
            "share": "number",
            "every": "count",
            "turned_down_at": "count",
            "traceback": "text",
        }
    },
}

SEEN: Final[Shape] = {"argv": "words", "error": "text", "forwards": "count", "backwards": "count"}

TRACE: Final[Shape] = {
    "schema_version": "count",
    "file": "text",
    "rank": "count",
    "base_us": "number",
    "events": "count",
    "notes": "words",
    "properties": {},
}

_LARGEST_COUNT: Final = 2**53
_NAMES: Final = {"text": "text", "count": "a count", "number": "a finite number", "words": "a list"}


def conformed(data: Mapping[str, Any], shape: Shape, name: str = "") -> tuple[dict[str, Any], list[str]]:
    """`data` without the fields whose values have another type than `shape` declares, and a clause about each."""
    kept, wrong = dict(data), []
    for field in data:
        expected = shape.get(field, shape.get(EACH))
        value = data[field]
        if expected is None:
            continue
        if value is None:
            if not isinstance(expected, str):
                del kept[field]  # Readers of an object find it, or no field of its name.
            continue
        if isinstance(expected, str):
            if not _is(value, expected):
                wrong.append(f"{name}{field} is {_kind(value)}, not {_NAMES[expected]}")
                del kept[field]
        elif isinstance(value, Mapping):
            kept[field], inner = conformed(value, expected, f"{name}{field}.")
            wrong += inner
        elif field != "device" or not isinstance(value, str):  # a device may be given by its name alone
            wrong.append(f"{name}{field} is {_kind(value)}, not an object")
            del kept[field]
    return kept, wrong


def _is(value: Any, expected: FieldType) -> bool:
    if expected == "text":
        return isinstance(value, str)
    if expected == "words":
        return isinstance(value, str | list)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    return expected == "number" or (value == int(value) and 0 <= value <= _LARGEST_COUNT)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    kinds = {str: "text", list: "a list", dict: "an object", int: "a number", float: "a number"}
    return kinds.get(type(value), "something else")
