"""Lines in which a function calls something by its name, read off its bytecode: nothing is wrapped, and what is found
may never have run.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from tracelyze.collectors.program.lines.instructions import FUNCTIONS, GLOBALS, METHODS, by_line

PRODUCTS = ("matmul", "bmm", "einsum", "baddbmm")


def methods(code: CodeType, name: str) -> list[int]:
    """The lines that take a method of this name, without those of functions that are defined inside."""
    return _lines(code, name, METHODS)


def functions(code: CodeType, name: str) -> list[int]:
    """The lines that take a function of this name, of a module or by itself."""
    return _lines(code, name, FUNCTIONS)


def by_itself(code: CodeType, name: str) -> list[int]:
    """The lines that take a function of this name by itself, of no module and no object."""
    return _lines(code, name, GLOBALS)


def softmaxes_of_attention(code: CodeType) -> list[int]:
    """The lines that take a softmax in a function that multiplies matrices as well."""
    found = _lines(code, "softmax", FUNCTIONS)
    multiplies = found and (not set(PRODUCTS).isdisjoint(code.co_names) or _has_matrix_product(code))
    return found if multiplies else []


def softmaxes(code: CodeType) -> list[int]:
    """The lines that take a softmax, or its logarithm, in a function that does not multiply matrices."""
    found = sorted({*_lines(code, "softmax", FUNCTIONS), *_lines(code, "log_softmax", FUNCTIONS)})
    return [] if found and softmaxes_of_attention(code) else found


def of_attributes(code: CodeType, names: set[str]) -> list[int]:
    """The lines that take one of these attributes, as of the layers that a module calls."""
    return sorted({line for name in names for line in _lines(code, name, METHODS)})


def first_statement(code: CodeType) -> int | None:
    """The line of the first statement of a function; None of a script, of a lambda, and of a function of one line."""
    lines = [line for _, _, line in code.co_lines() if line is not None and line > code.co_firstlineno]
    return None if code.co_name.startswith("<") else min(lines, default=None)


def yields(code: CodeType) -> list[int]:
    """The lines in which a generator hands something out."""
    return sorted({line for line, one in by_line(code) if one.opname == "YIELD_VALUE"})


def optimizers_returned(code: CodeType) -> list[int]:
    """The lines in which configure_optimizers returns what a framework is to step."""
    if code.co_name != "configure_optimizers":
        return []
    found: set[int] = set()
    nothing = False  # `return None`, also the one at the end that nobody writes
    for line, one in by_line(code):
        if one.opname == "RETURN_VALUE" and not nothing:
            found.add(line)
        nothing = one.opname == "LOAD_CONST" and one.argval is None
    return sorted(found)


def functions_around(kind: type) -> Iterator[CodeType]:
    """The methods of a class, and the functions of the file that its `forward` stands in. Each may come again."""
    forward = getattr(kind, "forward", None)
    given: list[Any] = list(vars(kind).values())
    if isinstance(forward, FunctionType):
        file = forward.__code__.co_filename
        others = [one for one in list(forward.__globals__.values()) if isinstance(one, FunctionType)]
        given += [one for one in others if one.__code__.co_filename == file]
    for one in given:
        function = getattr(one, "__func__", getattr(one, "fget", one))  # static methods, class methods, properties
        if isinstance(function, FunctionType):
            yield from with_inner(function.__code__)


def with_inner(code: CodeType) -> Iterator[CodeType]:
    """The code of a function, and that of the functions, comprehensions and generators in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from with_inner(constant)


def _lines(code: CodeType, name: str, operations: tuple[str, ...]) -> list[int]:
    if name not in code.co_names:
        return []
    found, line = set(), code.co_firstlineno
    for _, one in by_line(code):
        known = one.positions.end_lineno if one.positions is not None else None
        line = known or line
        if one.argval == name and one.opname in operations:
            found.add(line)
    return sorted(found)


def _has_matrix_product(code: CodeType) -> bool:
    return any(one.opname == "BINARY_OP" and one.argrepr in ("@", "@=") for _, one in by_line(code))
