"""A function whose results are kept without a bound: its decorator with a bound, and whether a key comes again."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.computed.optimization import leaks
from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Diff
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_BOUND: Final = "maxsize=128"  # what lru_cache itself takes where nothing is said
_NO_BOUND: Final = re.compile(r"\b(?:maxsize\s*=\s*None|(?<=lru_cache\()None)\b")
_DEF: Final = "def "
_DECORATORS: Final = 4  # lines from one of them to the function
_SETS: Final = re.compile(r"\s*(?P<name>\w+)\s*=[^=]")
_FOUND: Final = 0.1  # derived: of its calls; a cache of samples that are drawn finds 21% in the first half of a pass
_PASS: Final = 0.5  # passes over the data, before which such a cache may find as few


def by_chance(process: Process) -> str:
    """A sentence on the only such cache, whose key holds a number that is drawn anew for each sample: it grows for as
    long as there are batches, in the first pass over the data as well. Empty where that is not known.

    A number drawn from few values comes again, and so does one that says which sample is taken.
    """
    place, drawn = script_lines.only(process, "caches"), script_lines.only(process, "draws")
    rows = [row for row in process.events_of("cache") if place and (row["file"], row["line"]) == place.file_line]
    if place is None or drawn is None or len(rows) != 1 or leaks.passes(process.longest) < _PASS:
        return ""
    found = float(rows[0]["value"])
    if not 0 <= found <= _FOUND:
        return ""
    name = _SETS.match(drawn.source)
    used = _parameters(process, place, name["name"]) if name else set()
    if name is None or not used & set(str(rows[0]["text"]).split(", ")):
        return ""
    return (
        f" Line {drawn.line} draws its argument `{name['name']}` anew for each sample: only {percent(found)} of its "
        "calls found a result."
    )


def _parameters(process: Process, place: Location, name: str) -> set[str]:
    """The parameters that a variable of this name is handed to, in the recorded calls of the function at a place."""
    lines = recorded_text.of_file(process, place.file)
    head = next((lines[at] for at in range(place.line, place.line + _DECORATORS) if _DEF in lines.get(at, "")), "")
    given: set[str] = set()
    try:
        (function,) = ast.parse(f"{head.strip()} ...").body
        takes = [one.arg for one in function.args.args] if isinstance(function, ast.FunctionDef) else []
        takes = takes[takes[:1] == ["self"] :]
        calls = [line.strip() for line in lines.values() if f"{place.function}(" in line and _DEF not in line]
        trees = [ast.walk(ast.parse(line)) for line in calls]
    except SyntaxError:
        return given
    for node in (node for tree in trees for node in tree if isinstance(node, ast.Call)):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called == place.function:
            pairs = zip(takes, node.args, strict=False)
            given |= {parameter for parameter, value in pairs if isinstance(value, ast.Name) and value.id == name}
    return given


def bounded(process: Process, place: Location) -> Remedy:
    """A bound for what the decorator at this line caches. What functools computes anew is the same, so that results may
    go at any time."""
    line = _NO_BOUND.sub(_BOUND, place.source).replace("functools.cache", f"functools.lru_cache({_BOUND})")
    fix = (
        f"Line {place.line} keeps the result for every argument that is new, and new ones come until the end: give it "
        "a bound, or cache by a key that comes again."
    )
    lines = recorded_text.around(process, place)
    whole = lines.get(place.line, "")
    head = lines.get(place.line + 1, "").strip()
    if not head.startswith("def ") or not head.endswith(":"):
        head = f"def {place.function}(*arguments):"
    known = line != place.source
    code = f"{line if known else f'@functools.lru_cache({_BOUND})'}\n{head}\n    ...  # as it is"
    diff = Diff(place.file, place.line, [whole], [whole.replace(place.source, line)])
    return Remedy(fix, code, diff=diff if known and whole.strip() == place.source else None)
