"""A view that takes a tensor for one with two dimensions swapped: the numbers stay where they are, so that each row of
the result is put together from parts of several."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_SIZES: Final = re.compile(r"\s*(?P<names>\w+(?:\s*,\s*\w+){2,4})\s*=\s*(?P<tensor>\w+)\.(?:shape|size\(\))\s*$")
_VIEWED: Final = re.compile(
    r"\s*(?:(?P<name>\w+)\s*=(?!=)|return\b)\s*(?P<tensor>\w+)\.(?:view|reshape)\((?P<sizes>[\w\s,.*/-]+)\)"
    r"(?:\.contiguous\(\))?\s*$"
)
_HEAD: Final = re.compile(r"\s*(?:async )?def ")
_ASSIGNED: Final = r"\s*(?:\w+\s*,\s*)*{name}\b[^=]*=(?!=)"


def of(process: Process) -> Remedy | None:
    """The first such view, whose sizes are names that the script took from the shape of the very tensor in another
    order; with others of the function that are like it, and those that would read the result in the old order."""
    files = dict.fromkeys(one.file for one in recorded_text.lines(process))
    for place in (one for file in files for one in _views(process, file)):
        text = _function(recorded_text.of_file(process, place.file), place.line)
        found = _VIEWED.match(text.get(place.line, ""))
        known = _shape_before(text, place.line, found["tensor"]) if found else None
        if found is None or known is None:
            continue
        sizes = _names(found["sizes"])
        for at in range(min(len(known), len(sizes)) - 1):
            read = [*known[:at], known[at + 1], known[at], *known[at + 2 :]]
            named = [one for one, other in zip(sizes, read, strict=False) if one == other]
            fits = all(one == other or one not in known for one, other in zip(sizes, read, strict=False))
            if fits and len(sizes) == len(known) and {known[at], known[at + 1]} <= set(named):
                return _remedy(place, text, found, known, at)
    return None


def _views(process: Process, file: str) -> list[Location]:
    """The recorded lines of a file that are such a statement, in order."""
    lines = (one for one in recorded_text.lines(process) if one.file == file)
    places = {one.line: replace(one, source=one.source.strip()) for one in lines}
    return [one for _, one in sorted(places.items()) if _VIEWED.match(code_of(one.source))]


def _function(text: Mapping[int, str], number: int) -> dict[int, str]:
    """The recorded lines of the function that holds a line, between which one at most is missing at a time."""
    first = last = number
    while not _HEAD.match(text[first]) and (above := _next(text, first, -1)) is not None:
        first = above
    depth = recorded_text.indent_of(text[first])
    while (below := _next(text, last, 1)) is not None:
        if text[below].strip() and recorded_text.indent_of(text[below]) <= depth:
            break
        last = below
    return {at: code_of(text[at]) for at in range(first, last + 1) if at in text}


def _next(text: Mapping[int, str], number: int, way: int) -> int | None:
    return next((at for at in (number + way, number + 2 * way) if at in text), None)


def _remedy(place: Location, text: dict[int, str], found: re.Match[str], known: list[str], at: int) -> Remedy:
    """`at`: the first of the two dimensions."""
    views = [(line, other) for line, one in sorted(text.items()) if (other := _VIEWED.match(one))]
    first, swap = _names(found["sizes"])[: at + 1], f".transpose({at}, {at + 1})"
    like = [
        (line, other)
        for line, other in views
        if line != place.line and other["tensor"] == other["name"] and _names(other["sizes"])[: at + 1] == first
    ]
    back = [
        (line, other)
        for line, other in views
        if line > place.line and _names(other["sizes"])[: at + 1] == known[: at + 1]
    ]
    also = f" Do the same in {_lines(like)}." if like else ""
    code = [_swapped(one, swap) for one in (found, *(other for _, other in like))]
    if back:
        also += f" Swap them back in {_lines(back)}, which read{'s' * (len(back) == 1)} the result in the old order."
        code += [_swapped(other, swap, known) for _, other in back]
    return Remedy(
        fix=f"Swap the dimensions with transpose: view and reshape do not.{also}",
        code="\n".join(code),
        place=place,
        why=f" {found['tensor']} has the sizes [{', '.join(known)}], and line {place.line} reads it with "
        f"{known[at + 1]} in front of {known[at]}. The numbers stay where they are, so that what is read as one "
        f"{known[at + 1]} is put together from parts of several.",
    )


def _lines(found: list[tuple[int, re.Match[str]]]) -> str:
    return f"line{'s' * (len(found) > 1)} {listed([line for line, _ in found], most=8)}"


def _swapped(found: re.Match[str], swap: str, known: list[str] | None = None) -> str:
    """The statement with its dimensions swapped in place of the view; behind that, one that joins some of them."""
    joined = known is not None and len(_names(found["sizes"])) < len(known)
    then = f".reshape({found['sizes']})" if joined else ".contiguous()" * (known is not None)
    return f"{found['name'] + ' = ' if found['name'] else 'return '}{found['tensor']}{swap}{then}"


def _shape_before(text: dict[int, str], number: int, tensor: str) -> list[str] | None:
    """The names of the sizes of a tensor above a line, if nothing is assigned to it in between."""
    for at in sorted((one for one in text if one < number), reverse=True):
        found = _SIZES.match(text[at])
        if found and found["tensor"] == tensor:
            names = _names(found["names"])
            return names if len(set(names)) == len(names) else None
        if re.match(_ASSIGNED.format(name=tensor), text[at]):
            return None
    return None


def _names(sizes: str) -> list[str]:
    return [one.strip() for one in sizes.split(",") if one.strip()]
