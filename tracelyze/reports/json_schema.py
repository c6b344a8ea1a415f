"""The published JSON Schema of the diagnosis, made from the dataclasses that the JSON is written from."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Final

from tracelyze import diagnosis

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}
_UNPUBLISHED: Final = {"Diagnosis": {"picture"}, "Finding": set(diagnosis.INTERNAL)}
"""Fields that no JSON holds: what a page alone is made of, and what analyzers tell each other."""
_ABSENT_WHERE_EMPTY: Final = {"Diagnosis": {"ranks"}, "Check": {"traceback"}}


def schema() -> dict[str, Any]:
    """The schema of `tracelyze diagnose --format json`. Fields may be added within a version, so others are allowed."""
    definitions: dict[str, Any] = {}
    whole = _object(diagnosis.Diagnosis, definitions)
    whole["properties"]["schema_version"] = {"const": diagnosis.SCHEMA_VERSION}
    definitions["Evidence"]["properties"]["fires_at"] = {
        "enum": [">=", "<=", ""],
        "description": diagnosis.Evidence.fires_at.__doc__,
    }
    definitions["Evidence"]["properties"]["unit"] = {
        "type": "string",
        "description": "What stands behind the number in words, as `steps` or `share of the step`.",
    }
    definitions["Evidence"]["properties"]["measure"] = _of(diagnosis.Measure, definitions) | {
        "description": diagnosis.Evidence.measure.__doc__
    }
    definitions["Evidence"]["required"] += ["fires_at", "measure"]
    head = {"$schema": DIALECT, "title": "tracelyze diagnosis"}
    return head | whole | {"$defs": dict(sorted(definitions.items()))}


def _object(kind: type[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    fields = [one for one in dataclasses.fields(kind) if one.name not in _UNPUBLISHED.get(kind.__name__, set())]
    return {
        "type": "object",
        "description": " ".join((kind.__doc__ or "").split()),
        "properties": {one.name: _of(hints[one.name], definitions) for one in fields},
        "required": [one.name for one in fields if one.name not in _ABSENT_WHERE_EMPTY.get(kind.__name__, set())],
    }


def _of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}
            definitions[hint.__name__] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if hint is type(None):
        return {"type": "null"}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_of(one, definitions) for one in arguments]}
    if origin is list:
        return {"type": "array", "items": _of(arguments[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(arguments[1], definitions)}
    raise TypeError(f"the JSON Schema does not know {hint}")
