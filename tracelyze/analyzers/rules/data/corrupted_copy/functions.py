"""Functions of a script as far as the recorded lines show them, and the statements in them in the order they run."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.rules.data.corrupted_copy import early_reads
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.analyzers.script.names import names_in, places_in

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

MAY_NOT_RUN: Final = (ast.If, ast.While, ast.Try, ast.Match, ast.FunctionDef, ast.ClassDef)
_HEAD: Final = re.compile(r"\s*(?:async\s+)?def\s")
_OUTSIDE: Final = re.compile(r"\s*(?:#|\)|$)")  # lines that end no function, however little they are indented
_UNFINISHED: Final = 8  # lines at the end of what is recorded that may be a part of a statement


class Known(NamedTuple):
    """A function as it is recorded: `first`, its line in the file; `whole`, whether it is known up to its end."""

    tree: ast.FunctionDef
    first: int
    whole: bool

    def line(self, node: ast.stmt | ast.expr) -> int:
        return self.first + node.lineno - 1


def recorded_functions(process: Process, file: str) -> list[Known]:
    """The functions and methods of a file of which the head is recorded, as far as they are."""
    lines, found = recorded_text.of_file(process, file), []
    for first in sorted(at for at, line in lines.items() if _HEAD.match(line)):
        depth, last = recorded_text.indent_of(lines[first]), first + 1
        while last in lines and (_OUTSIDE.match(lines[last]) or recorded_text.indent_of(lines[last]) > depth):
            last += 1
        tree, whole = _parsed([lines[at] for at in range(first, last)])
        if tree is not None:
            found.append(Known(tree, first, whole and last in lines))
    return found


def _parsed(lines: list[str]) -> tuple[ast.FunctionDef | None, bool]:
    for dropped in range(min(_UNFINISHED, len(lines) - 1)):
        try:
            tree = ast.parse(textwrap.dedent("\n".join(lines[: len(lines) - dropped])))
        except (SyntaxError, ValueError):
            continue
        return (tree.body[0], not dropped) if isinstance(tree.body[0], ast.FunctionDef) else (None, False)
    return None, False


def blocks(tree: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def in_order(block: Sequence[ast.stmt], elements: dict[str, str]) -> Iterator[tuple[ast.stmt, dict[str, str]]]:
    """The statements as they run, with the variables of the loops around them. What waits in a loop over requests, or
    may not run, comes as a whole."""
    for statement in block:
        if isinstance(statement, ast.For) and not _waits_in_each(statement):
            yield from in_order(statement.body, elements | elements_of(statement.target, statement.iter))
        elif isinstance(statement, ast.With):
            yield from in_order(statement.body, elements)
        else:
            yield statement, elements


def _waits_in_each(loop: ast.For) -> bool:
    names = names_in(loop.target)
    return any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in early_reads.WAITS
        and isinstance(one.func.value, ast.Name) and one.func.value.id in names
        for one in ast.walk(loop)
    )  # fmt: skip


def mentions(node: ast.AST, text: str) -> bool:
    return text in places_in(node)


def waits(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Call) and name_of(one.func) in early_reads.WAITS for one in ast.walk(node))


def assigned(statement: ast.stmt, text: str) -> bool:
    return any(
        isinstance(one, ast.Name | ast.Attribute) and isinstance(one.ctx, ast.Store)
        and (ast.unparse(one) == text or text.startswith(f"{ast.unparse(one)}."))
        for one in ast.walk(statement)
    )  # fmt: skip


def elements_of(target: ast.expr, over: ast.expr) -> dict[str, str]:
    """By variable of a loop, the list of which it is an element: of `x`, `enumerate(x)`, `zip(x, y)`, or both."""
    if isinstance(target, ast.Name):
        known = not (isinstance(over, ast.Call) and name_of(over.func) in ("enumerate", "zip", "range", "reversed"))
        return {target.id: ast.unparse(over)} if known else {}
    if not isinstance(target, ast.Tuple) or not isinstance(over, ast.Call):
        return {}
    if name_of(over.func) == "enumerate" and len(target.elts) == 2 and over.args:
        return elements_of(target.elts[1], over.args[0])
    if name_of(over.func) == "zip" and len(target.elts) == len(over.args):
        found: dict[str, str] = {}
        for one, its in zip(target.elts, over.args, strict=True):
            found |= elements_of(one, its)
        return found
    return {}
