"""The diagnosis as JSON: the contract itself, strict, the same bytes for the same diagnosis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracelyze.reports import escaping

if TYPE_CHECKING:
    from tracelyze.diagnosis import Diagnosis

_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def render(diagnosis: Diagnosis) -> str:
    """`Diagnosis.to_dict()` as JSON text, a line a value, lists of plain values on one line."""
    return _text(contract(diagnosis), "") + "\n"


def contract(diagnosis: Diagnosis) -> dict[str, Any]:
    """`Diagnosis.to_dict()` with numbers that JSON can say.

    A NaN or infinity that is evidence is the point of the finding, so it becomes the string `NaN`, `Infinity` or
    `-Infinity`; everywhere else (the gaps of a chart) it becomes null.
    """
    data = diagnosis.to_dict()
    for finding in data["findings"]:
        for evidence in finding["evidence"]:
            for key in ("value", "threshold"):
                evidence[key] = named(evidence[key])
    strict: dict[str, Any] = escaping.strict(data)
    return strict


def named(value: object) -> object:
    """The value, or its name where it is a number that JSON cannot say."""
    if isinstance(value, float) and not math.isfinite(value):
        return _NAMES[str(value)]
    return value


def _text(value: Any, indent: str) -> str:
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        items = [f"{deeper}{escaping.json_text(key)}: {_text(item, deeper)}" for key, item in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return "[\n" + ",\n".join(deeper + _text(item, deeper) for item in value) + f"\n{indent}]"
    return escaping.json_text(value)
