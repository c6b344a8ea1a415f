"""The calls of the script's own functions and classes that were recorded, and what such a function is given."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement


class Called(NamedTuple):
    """A call, the statement that it is a part of, and the place of that."""

    place: Location
    own: OwnStatement
    call: ast.Call


class Signature(NamedTuple):
    """The head of a function: its line, and its arguments without `self`."""

    place: Location
    names: list[str]
    defaults: dict[str, str]


def of(process: Process, name: str, file: str) -> list[Called]:
    """The recorded calls of what goes by this name in a file, each once."""
    found: dict[tuple[int, int, int], Called] = {}
    if not name.isidentifier():
        return []
    for place in recorded_text.matching(process, re.compile(rf"(?<!def )(?<!class )\b{re.escape(name)}\s*\(")):
        own = own_statement.at(process, place) if place.file == file else None
        if own is None or not own.is_whole or not own.stands:
            continue
        for call in own.parsed.calls(name):
            found[own.line, call.lineno, call.col_offset] = Called(_in_its_function(process, place), own, call)
    return list(found.values())


def given(call: ast.Call, names: list[str]) -> set[str] | None:
    """Which of these arguments a call sets; None where `*sequence` or `**options` may set them."""
    if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
        return None
    return {*names[: len(call.args)], *(one.arg for one in call.keywords if one.arg)}


def signature(process: Process, inside: Location) -> Signature | None:
    """The head of the function that a place lies in; None where it was not recorded as a whole."""
    lines = recorded_text.of_file(process, inside.file)
    depth = recorded_text.indent_of(lines.get(inside.line, ""))
    at = inside.line - 1
    head = re.compile(rf"\s*(?:async )?def {re.escape(inside.function)}\(")
    while at in lines and not (head.match(lines[at]) and recorded_text.indent_of(lines[at]) < depth):
        at -= 1
    text = lines.get(at, "").strip()
    for below in range(at + 1, inside.line + 1):
        parsed = parsed_line.parse(text)
        said = parsed.statement if parsed is not None else None
        if parsed is not None and isinstance(said, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = [*said.args.posonlyargs, *said.args.args]
            names = [one.arg for one in arguments]
            last = said.args.defaults
            values = dict(zip(names[len(names) - len(last) :], last, strict=True))
            values |= {
                one.arg: value
                for one, value in zip(said.args.kwonlyargs, said.args.kw_defaults, strict=True)
                if value is not None
            }
            defaults = {name: parsed.text_of(value) for name, value in values.items()}
            place = inside.at(at, lines[at])
            return Signature(place, names[1:] if names[:1] in (["self"], ["cls"]) else names, defaults)
        text = f"{text}\n{lines.get(below, '')}"
    return None


def _in_its_function(process: Process, place: Location) -> Location:
    """The place with the function that was recorded for this very line, where one was."""
    rows = [row for row in process.sites.shared_records() if (row["file"], row["line"]) == place.file_line]
    within = [one for one in rows if one["function"] not in recorded_text.WITHIN]
    return replace(place, function=str(within[0]["function"] or "")) if within else place
