"""Lines that keep the best model, and that count epochs without progress, by what the script calls them."""

from __future__ import annotations

import re
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import by_line, names_of, names_stored
from tracelyze.collectors.program.lines.loops.extents import heads_of_outermost, loops

BEST: Final = re.compile(
    r"^_?best_?(?:model|net|network|module|policy|classifier|encoder|estimator|weights|params|parameters|tensors|state)?$"
)
WAITED: Final = re.compile(
    r"(?:^|_)(?:wait(?:ed|ing)?|stale|strikes|bad_epochs|no_improve\w*|not_improved|since_best|without_\w+)$"
    r"|patience_(?:count|left|used)",
    re.IGNORECASE,
)


def bests(code: CodeType) -> list[tuple[str, int]]:
    """Lines that assign what is named after the best model while a loop runs, and those that take it at another time.

    A function without a loop may be called in one: a method that sets an attribute of its object.
    """
    names = {name for name in (*code.co_names, *code.co_varnames, *code.co_cellvars) if BEST.match(name)}
    if not names:
        return []
    found: dict[tuple[str, int], None] = {}
    around, outermost = loops(code), heads_of_outermost(code)
    for line, one in by_line(code):
        stored = names.intersection(names_stored(one))
        inside = any(first <= line <= last for first, last in around)
        if stored and code.co_name != "__init__":
            called = not around and one.opname == "STORE_ATTR"
            if called or inside:
                found["best", line] = None
        elif not stored and str(one.argval) in names and (not inside or line in outermost):
            found["best-used", line] = None
    return list(found)


def waits(code: CodeType) -> list[tuple[str, int]]:
    """Lines that count on what is named after epochs without progress, in a loop or in a method, and that set it."""
    known = (*code.co_names, *code.co_varnames, *code.co_cellvars)
    names = {name for name in known if WAITED.search(name)}
    if any("patience" in name.lower() for name in known):
        names.update(name for name in known if name in ("count", "counter", "_counter"))
    if not names or code.co_name == "__init__":
        return []
    found: dict[tuple[str, int], None] = {}
    around, counts, taken = loops(code), False, set[str]()
    for line, one in by_line(code):
        stored = names_stored(one)
        for name in names.intersection(stored):
            called = not around and one.opname == "STORE_ATTR"
            if called or any(first <= line <= last for first, last in around):
                found["waits" if counts and name in taken else "waits-reset", line] = None
        if stored:
            counts, taken = False, set()
        else:
            counts |= one.opname == "BINARY_OP" and one.argrepr.rstrip("=") in ("+", "-")
            taken.update(name for name in names_of(one) if type(name) is str)
    return list(found)
