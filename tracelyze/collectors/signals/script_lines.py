"""Lines of the training loop that are found in its text: where gradients are cleared, where values are read back.

Nothing is wrapped for them, so they cost nothing and break no graph; but that a line stands in the loop is all that is
known: not that it ran. The text is read once, on a thread of ours, when the line of the backward is known.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from typing import Any

from tracelyze.collectors.signals.signal import Signal

READS = ("item", "tolist", "cpu", "numpy")
MAX_LINES = 20_000  # of a script
MAX_SITES = 40
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
LOOPS = (ast.For, ast.AsyncFor, ast.While)
CONDITIONAL = (ast.If, ast.IfExp, ast.ExceptHandler, ast.Try, ast.Match, *LOOPS)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class ScriptLines(Signal):
    name = "script_lines"
    columns = ()  # rows of the table sites with the roles zero_grad and read
    about = "Lines in the text of the training loop that clear gradients, or read values back (.item() and the like)."
    cost = "a few ms once, on a thread of ours"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self._done: set[int] = set()

    def every_second(self, row: dict[str, Any]) -> None:
        site = self.recorder.backward_site
        if site is None or site in self._done or len(self._done) >= MAX_SITES:
            return
        self._done.add(site)
        place = self.recorder.sites.place(site)
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
            self.recorder.sites.add(role, filename, at, function)


def lines_of_loop(source: str, backward: int) -> list[tuple[str, int, str]]:
    """Role, line and function of what concerns the loop with a backward in line `backward`.

    zero_grad: every call of it in the same function. read: calls of `.item()` and the like that run in each turn of the
    innermost loop around the backward (of the function, if it has none), not only under a condition.
    """
    scope, path = _around(ast.parse(source), backward)
    function = getattr(scope, "name", "<module>")
    found = [("zero_grad", line, function) for line in _calls(_all(scope), ("zero_grad",))]
    loop = next((node for node in reversed(path) if isinstance(node, LOOPS)), None)
    if loop is not None or not isinstance(scope, ast.Module):
        body = _unconditional(loop if loop is not None else scope, backward)
        found += [("read", line, function) for line in _calls(body, READS)]
    return sorted(set(found), key=lambda one: (one[1], one[0]))


def _around(tree: ast.Module, line: int) -> tuple[Scope, list[ast.AST]]:
    """The innermost function that contains a line, and the statements around the line within it, outermost first."""
    scope: Scope = tree
    path: list[ast.AST] = []
    pending: list[ast.AST] = list(ast.iter_child_nodes(tree))
    while pending:
        node = pending.pop()
        if not (getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", None) or 0)):
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            scope, path = node, []
        path.append(node)
        pending = list(ast.iter_child_nodes(node))
    return scope, path


def _all(scope: ast.AST) -> Iterator[ast.AST]:
    """Everything within a function, without the functions inside it."""
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, SCOPES):
            yield node
            yield from _all(node)


def _unconditional(body: ast.AST, line: int) -> Iterator[ast.AST]:
    """What runs whenever the statement in `line` does: branches and inner loops count only if they contain it."""
    for node in ast.iter_child_nodes(body):
        if isinstance(node, SCOPES) or (isinstance(node, CONDITIONAL) and not _holds([node], line)):
            continue
        if isinstance(node, ast.If):
            branch = node.body if _holds(node.body, line) else node.orelse
            node = ast.Module([ast.Expr(node.test), *branch], [])
        yield node
        yield from _unconditional(node, line)


def _holds(nodes: Sequence[ast.AST], line: int) -> bool:
    return any(getattr(node, "lineno", 0) <= line <= (getattr(node, "end_lineno", None) or 0) for node in nodes)


def _calls(nodes: Iterator[ast.AST], names: tuple[str, ...]) -> Iterator[int]:
    """Lines of calls of methods with these names."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
            yield node.func.end_lineno or node.lineno
