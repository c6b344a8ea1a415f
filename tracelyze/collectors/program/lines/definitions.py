"""Which line of the script defines a method: how its dataset makes a sample, how its optimizer steps."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Iterator
from types import CodeType
from typing import Any

from tracelyze.collectors.program.call_sites import Sites, is_library
from tracelyze.collectors.program.lines.instructions import by_line
from tracelyze.collectors.program.lines.loops import extents
from tracelyze.collectors.program.lines.named.powers import powers

AUGMENTS = re.compile(r"aug|jitter|distort|perturb", re.IGNORECASE)
MAX_DECORATORS = 8
MAX_POWERS = 16  # lines
MAX_DEPTH = 4  # datasets around another one: Subset, a dataset that transforms


def reader(dataset: Any, stream: bool, sites: Sites) -> int | None:
    """The number of the line that defines `__getitem__` (of a stream: `__iter__`) of a dataset of the script's own, or
    of the one that it wraps; None for a library's."""
    found = (method(one, "__iter__" if stream else "__getitem__", "dataset", sites) for one in wrapped_in(dataset))
    return next((site for site in found if site is not None), None)


def switches(dataset: Any, sites: Sites) -> None:
    """Note where a dataset of the script's own, or one that it wraps, is made with augmentation unless it is told
    otherwise: the argument, and its place among those that can be given without a name (-1: none can)."""
    for one in wrapped_in(dataset):
        made = getattr(type(one), "__init__", None)
        code = getattr(made, "__code__", None)  # none within decorators, which may give arguments
        if not isinstance(code, CodeType) or code is not code_of_method(type(one), "__init__"):
            continue
        named = code.co_varnames[: code.co_argcount]
        given = getattr(made, "__defaults__", None) or ()
        first = len(named) - len(given)
        on = [(named[first + at], first + at - 1) for at, value in enumerate(given) if value is True]  # but for `self`
        on += [(name, -1) for name, value in (getattr(made, "__kwdefaults__", None) or {}).items() if value is True]
        for name, place in on:
            if AUGMENTS.search(name):
                more = {"name": name, "own_name": type(one).__name__, "value": str(place)}
                sites.add("augmented", code.co_filename, _line_of(code), code.co_name, **more)


def wrapped_in(dataset: Any) -> Iterator[Any]:
    """A dataset, and those that it wraps, as Subset does."""
    for _ in range(MAX_DEPTH):
        yield dataset
        dataset = getattr(dataset, "__dict__", {}).get("dataset")


def method(owner: Any, name: str, role: str, sites: Sites) -> int | None:
    """The number of the line that defines a method of an object; None for a library's."""
    code = code_of_method(type(owner), name)
    return None if code is None else sites.at(role, code, _line_of(code))


def forward_of(kind: type, module: str, sites: Sites) -> bool:
    """Note the line that defines the forward of a class of the script's own, and lines in it that can make numbers far
    larger; False for a library's. `module`: the name that they get, of the module that is not finite."""
    code = code_of_method(kind, "forward")
    if code is None:
        return False
    sites.add("broken-forward", code.co_filename, _line_of(code), code.co_name, name=module)
    for line in powers(code)[:MAX_POWERS]:
        sites.add("powers", code.co_filename, line, code.co_name, name=module)
    return True


def factors(scheduler: Any, sites: Sites) -> None:
    """Note the functions of the script's own by which a LambdaLR multiplies its rates; a lambda stands where the
    scheduler is made."""
    given = getattr(scheduler, "lr_lambdas", ())  # an attribute of torch's; a scheduler of the script's may hold others
    for one in given if type(given) in (list, tuple) else ():
        code = code_of(one)
        if code is not None and code.co_name != "<lambda>":
            sites.at("rates", code, _line_of(code))


def code_of_method(kind: type, name: str) -> CodeType | None:
    """The code of a method of a class, within its decorators; None of a library's."""
    found = getattr(kind, name, None)
    code = getattr(inspect.unwrap(found) if callable(found) else None, "__code__", None)
    return code if isinstance(code, CodeType) and not is_library(code.co_filename) else None


def collator(collate: Any, sites: Sites) -> int | None:
    """The number of the line in which a collate_fn of the script's own takes something of the first sample alone, or
    of the last one; else of its definition. None for a library's."""
    code = code_of(collate)
    if code is None:
        return None
    return sites.at("collate", code, _of_the_first_sample(code) or _of_the_last_sample(code) or _line_of(code))


def code_of(called: Any) -> CodeType | None:
    """The code of a function of the script's own, or of an object that is called like one; None of a library's."""
    function = getattr(called, "func", called)  # of a partial
    if not hasattr(function, "__code__"):
        function = getattr(type(function), "__call__", None)  # noqa: B004  # the function, not whether there is one
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) and not is_library(code.co_filename) else None


def _of_the_first_sample(code: CodeType) -> int | None:
    """The line that takes number 0 of a parameter: `samples[0]["mask"]`."""
    parameters = set(code.co_varnames[: code.co_argcount])
    before = "", ""  # the names that the last two instructions took
    for line, one in by_line(code):
        if one.opname == "BINARY_SUBSCR" and before[0] in parameters and before[1] == "0":
            return line
        if one.opname not in ("CACHE", "EXTENDED_ARG"):
            before = before[1], str(one.argval)
    return None


def _of_the_last_sample(code: CodeType) -> int | None:
    """The only line in a loop that sets a variable which nothing in the loop reads: what is read of it after the loop
    is what the last sample left."""
    around = extents.loops(code)
    stored: dict[str, set[int]] = {}
    read: dict[str, set[int]] = {}
    for line, one in by_line(code):
        if "FAST" in one.opname or "DEREF" in one.opname:
            (stored if one.opname.startswith("STORE") else read).setdefault(str(one.argval), set()).add(line)
    found: set[int] = set()
    for first, last in around:
        for name, lines in stored.items():
            inside = {at for at in lines if first < at <= last}
            if inside and inside == lines and not any(first <= at <= last for at in read.get(name, ())):
                found |= inside if any(at > last for at in read.get(name, ())) else set()
    return found.pop() if len(found) == 1 else None


def _line_of(code: CodeType) -> int:
    """The line of `def`: the code of a decorated function begins at its first decorator."""
    first = line = code.co_firstlineno
    while linecache.getline(code.co_filename, line).lstrip().startswith("@") and line < first + MAX_DECORATORS:
        line += 1
    return line if f"def {code.co_name}" in linecache.getline(code.co_filename, line) else first
