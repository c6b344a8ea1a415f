"""Inputs that a function puts into another order, and not the targets that came with them: `x = x[perm]` alone, or
`x = [x[i] for i in by_length]`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracelyze.analyzers.recorded.run import Process

_DRAWS: Final = ("randperm", "permutation", "argsort")
_MAKES: Final = ("tensor", "as_tensor", "LongTensor", "array", "asarray", "list", "stack")  # the same rows of a list
_TARGET: Final = re.compile(r"y|y_\w+|t|(?:\w+_)?(?:labels?|targets?|classes|truth|answers?)", re.IGNORECASE)


@dataclass(frozen=True)
class OrderedAlone:
    """`place`: what puts `named` into an order; `beside`: what line `made` gives with it, and nothing puts into it."""

    place: Location
    named: str
    beside: str
    made: int
    diff: Diff
    example: str = ""

    @property
    def fix(self) -> str:
        """What to do."""
        return f"Put {self.beside} into the same order below line {self.place.line}, so that rows stay together."

    def said(self) -> str:
        """What the script's text shows."""
        return (
            f" Line {self.place.line} puts {self.named} into another order, and nothing does so with {self.beside}, "
            f"which came with it in line {self.made}: targets belong to other samples."
        )


def of(process: Process) -> OrderedAlone | None:
    """The only such line of the functions that draw an order, or find one by sorting."""
    drawn = {one.file_line: one for role in ("split", "shuffle", "orders") for one in process.locations(role)}
    found = [alone for one in drawn.values() if (alone := _in_function(process, one)) is not None]
    return found[0] if len({one.place.file_line for one in found}) == 1 else None


def _in_function(process: Process, place: Location) -> OrderedAlone | None:
    """Where the function's text is known from the line that makes both to where it returns."""
    text = recorded_text.of_function(process, place)
    known = [one for number in sorted(text) for one in _statement(process, place, number, text[number])]
    order = next((name for line, one in known if line == place.line for name in _order(one)), "")
    made = [(line, names) for line, one in known if line < place.line for names in _unpacked(one)]
    returns = [line for line, one in known if _hands_out(one) and line > place.line]
    if not order or not made or not returns:
        return None
    first, last = made[-1][0], returns[0]
    if any(number not in text for number in range(first, last + 1)):
        return None
    here = [(line, one) for line, one in known if first < line <= last]
    ordered = [(line, name) for line, one in here for name in _put_in(one, order)]
    uses = sum(_names(one).count(order) for _, one in here) - sum(_asks_for_length(one, order) for _, one in here)
    if not ordered or uses != len(ordered) + 1:
        return None  # the order serves for something else as well
    (line, named), beside = ordered[-1], _partner(made[-1][1], {name for _, name in ordered})
    old = text[line]
    alike = old.replace(f"{named} = [{named}[", f"{beside} = [{beside}[")  # a list that takes row by row
    one_by_one = alike != old
    changing = [one for at, one in here if not (one_by_one and at > line and _makes(one, beside))]
    if not beside or any(_changes(one, beside) for one in changing):
        return None
    added = alike if one_by_one else f"{old[: len(old) - len(old.lstrip())]}{beside} = {beside}[{order}]"
    where = place.at(line, old)
    return OrderedAlone(where, named, beside, first, Diff(place.file, line, [old], [old, added]))


def _statement(process: Process, place: Location, number: int, text: str) -> Iterator[tuple[int, ast.stmt]]:
    own = own_statement.at(process, place.at(number, text))
    if own is not None and own.line == number:
        yield number, own.parsed.statement


def _order(one: ast.stmt) -> Iterator[str]:
    """The name that a statement gives to an order which it draws of a number of rows, or finds by sorting numbers of
    rows."""
    target, value = _assigned(one)
    if isinstance(target, ast.Name) and isinstance(value, ast.Call) and name_of(value.func) == "sorted":
        numbers = value.args[0] if value.args else None
        yield from (target.id,) if isinstance(numbers, ast.Call) and name_of(numbers.func) == "range" else ()
    if isinstance(target, ast.Name) and isinstance(value, ast.Call) and name_of(value.func) in _DRAWS:
        of_rows = value.args and isinstance(value.args[0], ast.Name)  # rows themselves, or their number
        yield from () if of_rows and name_of(value.func) == "permutation" else (target.id,)


def _assigned(one: ast.stmt) -> tuple[ast.expr | None, ast.expr | None]:
    return (one.targets[0], one.value) if isinstance(one, ast.Assign) and len(one.targets) == 1 else (None, None)


def _unpacked(one: ast.stmt) -> Iterator[list[str]]:
    """The names to which a statement gives what one call returns."""
    target, value = _assigned(one)
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Call):
        names = [each.id for each in target.elts if isinstance(each, ast.Name)]
        if len(names) == len(target.elts):
            yield names


def _put_in(one: ast.stmt, order: str) -> Iterator[str]:
    """The name of what a statement leaves in the order, under the same name."""
    target, value = _assigned(one)
    if not isinstance(target, ast.Name) or value is None:
        return
    each = value.generators[0].target if isinstance(value, ast.ListComp) else None
    row = each.id if isinstance(each, ast.Name) else ""
    if ast.unparse(value) in (f"{target.id}[{order}]", f"[{target.id}[{row}] for {row} in {order}]"):
        yield target.id


def _hands_out(one: ast.stmt) -> bool:
    return isinstance(one, ast.Return) or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Yield))


def _makes(one: ast.stmt, name: str) -> bool:
    """Whether a statement makes a tensor or an array of what goes by the name, and nothing else."""
    target, value = _assigned(one)
    return (
        isinstance(target, ast.Name)
        and target.id == name
        and isinstance(value, ast.Call)
        and name_of(value.func) in _MAKES
        and bool(value.args)
        and ast.unparse(value.args[0]) == name
    )


def _partner(names: list[str], ordered: set[str]) -> str:
    """The only targets among names that came together, which are not put into the order as the inputs are."""
    targets = [name for name in names if _TARGET.fullmatch(name)]
    inputs = [name for name in names if name in ordered and name not in targets]
    return targets[0] if len(targets) == 1 and inputs and targets[0] not in ordered else ""


def _changes(one: ast.stmt, name: str) -> bool:
    """Whether a statement gives the name another value, or takes more of it than a slice."""
    stored = [each for each in ast.walk(one) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    taken = [each for each in ast.walk(one) if isinstance(each, ast.Subscript) and ast.unparse(each.value) == name]
    called = [each for each in ast.walk(one) if isinstance(each, ast.Call)]
    given = any(name in _names(each) for each in called)
    return (
        given or any(each.id == name for each in stored) or any(not isinstance(each.slice, ast.Slice) for each in taken)
    )


def _names(one: ast.AST) -> list[str]:
    return [each.id for each in ast.walk(one) if isinstance(each, ast.Name)]


def _asks_for_length(one: ast.stmt, order: str) -> int:
    calls = [each for each in ast.walk(one) if isinstance(each, ast.Call) and name_of(each.func) == "len"]
    return sum(ast.unparse(each.args[0]) == order for each in calls if each.args)
