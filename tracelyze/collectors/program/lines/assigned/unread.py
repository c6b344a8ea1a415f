"""Lines that scale values and give the result a name which nothing reads, or only a report, read off bytecode; and the
line that takes, in place of it, what was scaled."""

from __future__ import annotations

import dis
import re
from types import CodeType
from typing import Final, NamedTuple

from tracelyze.collectors.program.lines.instructions import METHODS, by_line, name_taken, names_of, names_stored

SCALES: Final = frozenset({"transform", "fit_transform", "normalize", "standardize"})
REPORTS: Final = frozenset({"print", "logger", "logging", "wandb", "writer"})  # what such a call begins with
_SPREAD: Final = re.compile(r"(?:^|_)(?:std|sd|sigma|scales?|spread|dev\w*|stds)(?:_|$)", re.IGNORECASE)
_FITS: Final = "fit"
_ANYWHERE: Final = frozenset({"locals", "globals", "vars"})  # what is read through these is not known
_QUIET: Final = ("CACHE", "PRECALL", "EXTENDED_ARG", "NOP", "RESUME", "PUSH_NULL", "COPY_FREE_VARS")
_ITEM: Final = "[]"
_NAMES: Final = ("LOAD_FAST", "LOAD_NAME", "LOAD_FAST_BORROW")


class _Statement(NamedTuple):
    """One that gives a name a value: its instructions, the last of which is the one that does so."""

    line: int
    first: int
    last: int
    name: str
    scaled: tuple[str, ...]
    """What it scales, as the names and brackets that its instructions take; empty where it scales nothing."""


def lines(code: CodeType) -> list[tuple[str, int]]:
    """Roles and lines of a function: `scaled = scaler.transform(x)` (unread), `train(x)` below it (raw)."""
    names = (*code.co_names, *code.co_varnames)
    scales = SCALES.intersection(code.co_names) or any(_SPREAD.search(name) for name in names)
    if not scales or _ANYWHERE.intersection(code.co_names):
        return []
    here = [pair for pair in by_line(code) if pair[1].opname not in _QUIET]
    reports = _reports(here)
    read, stored = _read(code, here, reports), [name for _, one in here for name in names_stored(one)]
    found: list[tuple[str, int]] = []
    statements = _statements(here)
    unread = [one for one in statements if one.scaled and one.name not in read and stored.count(one.name) == 1]
    inside = {at for one in unread for at in range(one.first, one.last + 1)}
    for one in unread:
        found.append(("unread", one.line))
        taken = [at for at in _places(here, one.scaled) if at > one.last and at not in inside]
        taken = [at for at in taken if not _within(here[at][1], reports) and not _fits(here, at)]
        found += [("raw", here[at][0]) for at in taken[:1]]
    return found


def _statements(here: list[tuple[int, dis.Instruction]]) -> list[_Statement]:
    found: list[_Statement] = []
    begin = 0
    for at, (_, one) in enumerate(here):
        names = names_stored(one)
        if len(names) == 1 and one.opname != "STORE_ATTR" and at > begin:
            line = min(number for number, _ in here[begin : at + 1])
            found.append(_Statement(line, begin, at, names[0], _scaled([one for _, one in here[begin:at]])))
        if names or one.opname in ("POP_TOP", "STORE_SUBSCR", "RETURN_VALUE") or "JUMP" in one.opname:
            begin = at + 1
    return found


def _scaled(value: list[dis.Instruction]) -> tuple[str, ...]:
    """What the only call of its kind is given, `scaler.transform(x[columns])`; or x in `(x - mean) / std`."""
    calls = [at for at, one in enumerate(value) if one.opname in METHODS and one.argval in SCALES]
    if len(calls) == 1:
        return _chain(value[calls[0] + 1 :])
    signs = [one.argrepr for one in value if one.opname == "BINARY_OP"]
    plain = bool(value) and value[0].opname in _NAMES and len(names_of(value[0])) == 1
    follows = len(value) > 1 and value[1].opname in _NAMES
    if signs == ["-", "/"] and plain and follows and not any(one.opname.startswith("CALL") for one in value):
        return (name_taken(value[0]),)
    return ()


def _chain(value: list[dis.Instruction]) -> tuple[str, ...]:
    """The names that the first argument of a call takes, one from the other."""
    found: list[str] = []
    for one in value:
        if not one.opname.startswith(("LOAD_", "BINARY_SUBSCR")) and one.argrepr != _ITEM:
            break
        found.append(_step(one))
    return tuple(found)


def _step(one: dis.Instruction) -> str:
    return name_taken(one) if one.opname.startswith("LOAD_") else _ITEM


def _places(here: list[tuple[int, dis.Instruction]], chain: tuple[str, ...]) -> list[int]:
    """Where instructions take these names, one from the other."""
    taken = [_step(one) if one.opname.startswith(("LOAD_", "BINARY_SUBSCR")) else "" for _, one in here]
    taken = [_ITEM if one.argrepr == _ITEM else name for name, (_, one) in zip(taken, here, strict=True)]
    width = len(chain)
    return [at for at in range(len(taken) - width + 1) if width and tuple(taken[at : at + width]) == chain]


def _fits(here: list[tuple[int, dis.Instruction]], at: int) -> bool:
    """Whether what is taken there is what a scaler is fitted to, or another one scales."""
    before = [one for _, one in here[max(0, at - 1) : at]]
    return any(one.argval in SCALES or one.argval == _FITS for one in before)


def _reports(here: list[tuple[int, dis.Instruction]]) -> list[dis.Positions]:
    """Where calls stand that print or log."""
    begins = {
        (one.positions.lineno, one.positions.col_offset)
        for _, one in here
        if one.positions is not None and one.opname.startswith("LOAD_") and name_taken(one) in REPORTS
    }
    calls = [one.positions for _, one in here if one.opname.startswith("CALL") and one.positions is not None]
    return [one for one in calls if (one.lineno, one.col_offset) in begins]


def _within(one: dis.Instruction, spans: list[dis.Positions]) -> bool:
    place = one.positions
    if place is None or place.lineno is None or place.col_offset is None:
        return False
    here = place.lineno, place.col_offset
    return any(
        (span.lineno or 0, span.col_offset or 0) <= here < (span.end_lineno or 0, span.end_col_offset or 0)
        for span in spans
    )


def _read(code: CodeType, here: list[tuple[int, dis.Instruction]], reports: list[dis.Positions]) -> set[str]:
    """The names that a function, or one that it defines, reads, but for reports."""
    found = {*code.co_cellvars, *code.co_freevars}
    found |= {name for inner in code.co_consts if isinstance(inner, CodeType) for name in inner.co_names}
    for _, one in here:
        loads = one.opname.startswith("LOAD_") and one.opname != "LOAD_CONST"
        if (loads or one.opname == "STORE_FAST_LOAD_FAST") and not _within(one, reports):
            names = names_of(one)
            found |= {str(name) for name in (names[1:] if one.opname.startswith("STORE") else names)}
    return found
