"""Lines that scale values and give the result a name which nothing reads, or only a report, read off bytecode; and the
line that takes, in place of it, what was scaled."""

from __future__ import annotations

import dis
import itertools
import re
from collections import Counter
from types import CodeType
from typing import Final, NamedTuple

from tracelyze.collectors.program.lines.instructions import METHODS, by_line, names_stored
from tracelyze.collectors.program.lines.named_calls import with_inner

SCALES: Final = frozenset({"transform", "fit_transform", "normalize", "standardize"})
REPORTS: Final = frozenset({"print", "logger", "logging", "wandb", "writer"})  # what such a call begins with
_SUMS_UP: Final = frozenset({"float", "int", "len", "max", "min", "np", "numpy", "round", "str"})  # within a report
_SPREAD: Final = re.compile(r"(?:^|_)(?:std|sd|sigma|scales?|spread|dev\w*|stds)(?:_|$)", re.IGNORECASE)
_FITS: Final = "fit"
_ANYWHERE: Final = frozenset({"locals", "globals", "vars"})  # what is read through these is not known
_QUIET: Final = ("CACHE", "PRECALL", "EXTENDED_ARG", "NOP", "RESUME", "PUSH_NULL", "COPY_FREE_VARS")
_ITEM: Final = "[]"
_ELSEWHERE: Final = ("STORE_ATTR", "STORE_GLOBAL")  # what other functions may read
_NAMES: Final = ("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL")
_FUNCTION: Final = 0x1  # CO_OPTIMIZED: neither a file nor the body of a class, whose names are attributes


class _Statement(NamedTuple):
    """One that gives a name a value: its instructions, the last of which is the one that does so."""

    line: int
    first: int
    last: int
    name: str
    scaled: tuple[str, ...]
    """What it scales, as the names and brackets that its instructions take; empty where it scales nothing."""


def lines(code: CodeType) -> list[tuple[str, int]]:
    """Roles and lines of a function or a file: `scaled = scaler.transform(x)` (unread), `train(x)` below it (raw)."""
    if not code.co_flags & _FUNCTION and code.co_name != "<module>":
        return []
    names = (*code.co_names, *code.co_varnames)
    scales = SCALES.intersection(code.co_names) or any(_SPREAD.search(name) for name in names)
    if not scales or _ANYWHERE.intersection(code.co_names):
        return []
    here = [pair for pair in by_line(code) if pair[1].opname not in _QUIET]
    stored = Counter(name for _, one in here for name in names_stored(one))
    once = [one for one in _statements(here) if one.scaled and stored[one.name] == 1]
    reports = _calls(here, REPORTS) if once else []
    read = _read(code, here, {one.name for one in once}, reports)
    unread = [one for one in once if one.name not in read]
    found: list[tuple[str, int]] = []
    inside = {at for one in unread for at in range(one.first, one.last + 1)}
    for one in unread:
        found.append(("unread", one.line))
        taken = [at for at in _places(here, one.scaled) if at > one.last and at not in inside]
        taken = [at for at in taken if not _within(here[at][1], reports) and not _fits(here, at)]
        if {name for _, later in here[one.last + 1 :] for name in names_stored(later)}.intersection(one.scaled):
            continue  # It may have been scaled under its own name.
        found += [("raw", here[at][0]) for at in taken[:1]]
    return found


def _statements(here: list[tuple[int, dis.Instruction]]) -> list[_Statement]:
    found: list[_Statement] = []
    begin = 0
    for at, (_, one) in enumerate(here):
        names = names_stored(one)
        if len(names) == 1 and one.opname not in _ELSEWHERE and names[0].strip("_") and at > begin:
            line = min(number for number, _ in here[begin : at + 1])
            found.append(_Statement(line, begin, at, names[0], _scaled([one for _, one in here[begin:at]])))
        if names or one.opname in ("POP_TOP", "STORE_SUBSCR", "RETURN_VALUE") or "JUMP" in one.opname:
            begin = at + 1
    return found


def _scaled(value: list[dis.Instruction]) -> tuple[str, ...]:
    """What the only call of its kind is given, `scaler.transform(x[columns])`; or x in `(x - mean) / std`."""
    calls = [at for at, one in enumerate(value) if one.opname in METHODS and one.argval in SCALES]
    taken = _taken(value)
    if len(calls) == 1:
        behind = [name for at, name in taken if at > calls[0]]
        return tuple(itertools.takewhile(bool, behind))
    signs = [one.argrepr for one in value if one.opname == "BINARY_OP"]
    if signs != ["-", "/"] or any(one.opname.startswith("CALL") for one in value):
        return ()
    plain = [name for at, name in taken[:2] if name and value[at].opname.startswith(_NAMES)]
    return (plain[0],) if len(plain) == 2 else ()


def _taken(instructions: list[dis.Instruction]) -> list[tuple[int, str]]:
    """The names and brackets that instructions take, each with the number of its instruction; an empty one for any
    other instruction. An attribute has a dot before it, and a string its quotes, so that neither is a variable."""
    found: list[tuple[int, str]] = []
    for at, one in enumerate(instructions):
        if one.opname in METHODS:
            found.append((at, f".{one.argval}"))
        elif one.opname == "LOAD_CONST":
            found.append((at, repr(one.argval)))
        elif one.opname.startswith("LOAD_"):
            found.append((at, str(one.argval)))
        else:
            found.append((at, _ITEM if one.opname == "BINARY_SUBSCR" else ""))
    return found


def _places(here: list[tuple[int, dis.Instruction]], chain: tuple[str, ...]) -> list[int]:
    """Where instructions take these names, one from the other."""
    taken = _taken([one for _, one in here])
    names, width = [name for _, name in taken], len(chain)
    begins = [at for at in range(len(names) - width + 1) if width and tuple(names[at : at + width]) == chain]
    return [taken[at][0] for at in begins]


def _fits(here: list[tuple[int, dis.Instruction]], at: int) -> bool:
    """Whether what is taken there is what a scaler is fitted to, or another one scales."""
    before = [one for _, one in here[max(0, at - 1) : at]]
    return any(one.argval in SCALES or one.argval == _FITS for one in before)


def _calls(here: list[tuple[int, dis.Instruction]], names: frozenset[str]) -> list[dis.Positions]:
    """Where calls stand that begin with one of these names."""
    begins = {_begin(one.positions) for _, one in here if one.opname.startswith("LOAD_") and str(one.argval) in names}
    return [one for one in _all_calls(here) if _begin(one) in begins]


def _all_calls(here: list[tuple[int, dis.Instruction]]) -> list[dis.Positions]:
    return [one.positions for _, one in here if one.opname.startswith("CALL") and one.positions is not None]


def _within(one: dis.Instruction, spans: list[dis.Positions]) -> bool:
    place = one.positions
    if place is None or place.lineno is None or place.col_offset is None:
        return False
    here = place.lineno, place.col_offset
    return any(
        (span.lineno or 0, span.col_offset or 0) <= here < (span.end_lineno or 0, span.end_col_offset or 0)
        for span in spans
    )


def _read(
    code: CodeType, here: list[tuple[int, dis.Instruction]], asked: set[str], reports: list[dis.Positions]
) -> set[str]:
    """Which of these names a function, or one that it defines, reads, but for reports. What a report has another
    function compute is read, `print(evaluate(model, scaled))`: not what is summed up, `print(scaled.mean())`."""
    found = {*code.co_cellvars, *code.co_freevars}
    found |= {name for inner in with_inner(code) if inner is not code for name in inner.co_names}
    for _, one in here:
        loads = one.opname.startswith("LOAD_") and one.opname != "LOAD_CONST"
        taken = {str(one.argval)} & asked - found if loads else set[str]()
        if taken and not (_within(one, reports) and _is_summed_up(one, here)):
            found |= taken
    return found & asked


def _is_summed_up(one: dis.Instruction, here: list[tuple[int, dis.Instruction]]) -> bool:
    """Whether nothing but its own methods, and functions that sum up, are given what is taken in a report."""
    known = {*_calls(here, REPORTS), *_calls(here, _SUMS_UP)}
    others = [call for call in _all_calls(here) if call not in known and _begin(call) != _begin(one.positions)]
    return not _within(one, others)


def _begin(place: dis.Positions | None) -> tuple[int | None, int | None] | None:
    return None if place is None else (place.lineno, place.col_offset)
