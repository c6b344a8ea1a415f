"""Lines of the training loop that are found in its text: where gradients are cleared.

Nothing is wrapped for them, so they cost nothing and break no graph; but that a line stands there is all that is
known: not that it ran. The text is read once, on a thread of ours, when the line of the backward is known.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from typing import Any

from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal

MAX_LINES = 20_000  # of a script
MAX_SITES = 40
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class ScriptLines(Signal):
    name = "script_lines"
    columns = ()  # rows of the table sites with the role zero_grad
    about = "Lines in the text of the training loop that clear gradients."
    cost = "a few ms once, on a thread of ours"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._done: set[int] = set()

    def every_second(self, row: dict[str, Any]) -> None:
        site = self.progress.backward_site
        if site is None or site in self._done or len(self._done) >= MAX_SITES:
            return
        self._done.add(site)
        place = self.program.sites.place(site)
        if place is None:
            return
        filename, line = place
        lines = linecache.getlines(filename)
        if not 0 < len(lines) <= MAX_LINES:
            return
        try:
            found = lines_of_loop("".join(lines), line)
        except (SyntaxError, ValueError, RecursionError):  # what was run is not what the file now holds
            return
        for role, at, function in found[:MAX_SITES]:
            self.program.sites.add(role, filename, at, function)


def lines_of_loop(source: str, backward: int) -> list[tuple[str, int, str]]:
    """Role, line and function of every call of `zero_grad` in the function that has a backward in line `backward`."""
    scope = _around(ast.parse(source), backward)
    function = getattr(scope, "name", "<module>")
    return sorted({("zero_grad", line, function) for line in _calls(_all(scope), "zero_grad")}, key=lambda one: one[1])


def _around(tree: ast.Module, line: int) -> Scope:
    """The innermost function that contains a line."""
    scope: Scope = tree
    pending: list[ast.AST] = list(ast.iter_child_nodes(tree))
    while pending:
        node = pending.pop()
        if not (getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", None) or 0)):
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            scope = node
        pending = list(ast.iter_child_nodes(node))
    return scope


def _all(scope: ast.AST) -> Iterator[ast.AST]:
    """Everything within a function, without the functions inside it."""
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, SCOPES):
            yield node
            yield from _all(node)


def _calls(nodes: Iterator[ast.AST], name: str) -> Iterator[int]:
    """Lines of calls of the method `name`."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
            yield node.func.end_lineno or node.lineno
