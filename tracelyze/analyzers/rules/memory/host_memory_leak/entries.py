"""A list or dictionary that gets one more entry with every step, or every sample, by a line of the script: that line
with a bound on how many stay."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Diff

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Location

_HOLDERS: Final = (ast.Name, ast.Attribute)
_LAST: Final = 100  # entries that an example leaves in a list


IN_ARRAYS: Final = Remedy(
    "Store samples in a few large arrays instead of lists or dictionaries of Python objects, and bound the dataset's "
    "caches.",
    "self.paths = np.array(paths)  # one block of memory instead of a list of Python strings",
)


def bounded(process: Process, place: Location | None, dataset: bool) -> Remedy | None:
    """A bound for what the line at this place puts its entries into. `dataset`: it stands where a data set reads a
    sample. None where neither an append nor an entry of a dictionary is known there."""
    own = own_statement.at(process, place) if place else None
    if own is None or place is None:
        return None
    statement = own.parsed.statement
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if isinstance(target, ast.Subscript) and isinstance(target.value, _HOLDERS):
        return _of_dictionary(process, place, own, ast.unparse(target.value), ast.unparse(target.slice), dataset)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    held = ast.unparse(call.func.value)
    if call.func.attr == "append":
        return _of_list(own, held, dataset)
    return _of_metric(own, held) if call.func.attr == "update" and not dataset else None


def _of_dictionary(
    process: Process, place: Location, own: OwnStatement, held: str, key: str, dataset: bool
) -> Remedy | None:
    """What asks whether the key is there computes what is missing anew, so that entries may go at any time."""
    if not dataset:
        return None
    text = "\n".join(recorded_text.of_function(process, place).values())
    name = re.escape(held)
    asks = re.search(rf"\bnot in {name}\b|\bif\b[^:\n]*\bin {name}\b|(?<![\w.]){name}\.get\(", text)
    read = len(re.findall(rf"(?<![\w.]){name}(?:\[|\.get\()", text)) > 1  # and not written alone
    fix = (
        f"Line {place.line} adds an entry to `{held}` for every `{key}` that is new, and new ones still come after the "
        "first pass: bound it, or use a key that comes again."
    )
    head = f"while len({held}) >= len(self):  # no more entries than samples: the oldest one goes"
    lines = [head, f"    {held}.pop(next(iter({held})))"]
    code = "\n".join([*lines, own.dedented(own.text)])
    known = asks and read and own.stands and own.is_whole
    diff = Diff(own.file, own.line, [], [own.indent + one for one in lines]) if known else None
    return Remedy(fix, code, diff=diff)


def _of_list(own: OwnStatement, held: str, dataset: bool) -> Remedy:
    """What else reads the list is not known, so that its bound is an example."""
    what = "for every sample that is read" if dataset else "with every step"
    fix = (
        f"Line {own.line} adds an entry to `{held}` {what}. Keep the last ones alone, or a number in place of each "
        "tensor or array, or write them to disk."
    )
    return Remedy(fix, f"{own.dedented(own.text)}\ndel {held}[:-{_LAST}]  # the last {_LAST} stay")


def _of_metric(own: OwnStatement, held: str) -> Remedy:
    """An object of a library whose update() puts what it is given into a list of its own."""
    fix = (
        f"Line {own.line} hands `{held}` something that it keeps until it is reset: reset it each time that its value "
        "was reported, and compute that value there alone, since it goes over all that was kept."
    )
    return Remedy(fix, f"value = {held}.compute()  # where it is reported, and not with each step\n{held}.reset()")
