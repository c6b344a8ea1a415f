"""What a file of the program defines: its functions, its data sets, and the keys that its functions write."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

from tracelyze.collectors.internals.local_variables import attributes
from tracelyze.collectors.program.call_sites import script_modules
from tracelyze.collectors.program.lines.instructions import LONGEST, by_line
from tracelyze.collectors.program.lines.named_calls import with_inner

_GENERATOR: Final = 0x20  # CO_GENERATOR
_MOST_WRAPPERS: Final = 4
_MOST: Final = 4000  # functions of a file


class Text(NamedTuple):
    """What a file of the program defines: its functions, the names of its data sets, and the functions of these."""

    functions: list[CodeType]
    datasets: frozenset[str]
    readers: list[CodeType]


def of_file(filename: str) -> Text:
    """What stands in a file of the program, without the code of the file itself."""
    found: dict[int, CodeType] = {}
    datasets: set[str] = set()
    readers: list[CodeType] = []
    for file, module in script_modules():
        if file != filename:
            continue
        for one in list(attributes(module).values()):
            is_class = issubclass(type(one), type)
            owned = list(type.__getattribute__(one, "__dict__").values()) if is_class else [one]
            if is_class and any(base.__name__ == "Dataset" for base in type.__getattribute__(one, "__mro__")[1:]):
                datasets.add(one.__name__)
                readers += [code for code in _codes(owned, filename) if code.co_name != "__init__"]
            for code in _codes(owned, filename):
                found[id(code)] = code
    return Text(list(found.values())[:_MOST], frozenset(datasets), readers[:_MOST])


def batches_of(code: CodeType, functions: list[CodeType]) -> list[CodeType]:
    """The generators of a file that a function asks for by their name: what makes the batches of a loop."""
    return [one for one in functions if one.co_flags & _GENERATOR and one.co_name in code.co_names]


def unread(keys: set[str], codes: list[CodeType]) -> set[str]:
    """Which of these keys functions give to a dictionary that they make, and name at no other place.

    A dictionary in which all keys are constants is made of one tuple of them. Other constants count as read.
    """
    written: set[str] = set()
    for code in codes:
        if len(code.co_code) > LONGEST:
            return set()
        here = [one for _, one in by_line(code)]
        for one, after in zip(here, here[1:] + here[-1:], strict=True):
            if one.opname != "LOAD_CONST":
                continue
            if type(one.argval) is tuple and after.opname == "BUILD_CONST_KEY_MAP":
                written |= keys.intersection(key for key in one.argval if type(key) is str)
            elif after.opname != "STORE_SUBSCR":
                named = one.argval if type(one.argval) in (tuple, frozenset) else (one.argval,)
                keys = keys.difference(name for name in named if type(name) is str)
    return written & keys


def _codes(owned: list[Any], filename: str) -> Iterator[CodeType]:
    """Functions among these objects. By their exact types: others may compute their attributes, even their class."""
    for one in owned:
        kind = type(one)
        function = one.__func__ if kind in (staticmethod, classmethod) else one.fget if kind is property else one
        if type(function) is FunctionType:
            for _ in range(_MOST_WRAPPERS):  # torch.no_grad() as a decorator, within torch's around the step
                wrapped = function.__dict__.get("__wrapped__")
                function = wrapped if type(wrapped) is FunctionType else function
            if function.__code__.co_filename == filename:
                yield from with_inner(function.__code__)
