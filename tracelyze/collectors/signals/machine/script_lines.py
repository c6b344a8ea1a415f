"""Lines that are found in the text of the training loop (where gradients are cleared) and in that of the model (where
attention has its softmax); and lines that make modules.

Nothing is wrapped for the former, so they cost nothing and break no graph; but that a line stands there is all that is
known: not that it ran. The text is read once, on a thread of ours, when the line of the backward is known.
"""

from __future__ import annotations

import ast
import itertools
import linecache
from collections.abc import Iterator
from types import CodeType
from typing import Any

from tracelyze.collectors.program.call_sites import is_library
from tracelyze.collectors.program.lines import construction
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler

MAX_LINES = 20_000  # of a script
MAX_SITES = 40
PRODUCTS = ("matmul", "bmm", "einsum", "baddbmm")
MAX_PARTS = 20_000  # modules of a model that are gone through
MAX_ROWS = 2000
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class ScriptLines(Signal):
    name = "script_lines"
    columns = tuple(f"modules.{name}" for name in ("model", "module", "kind", "made_at"))
    about = (
        "Lines in the text of the training loop that clear gradients, softmaxes of attention in the text of the model; "
        "lines that make its modules."
    )
    cost = "a few ms once, on a thread of ours; 3 us for each module that is made, and again at the first step"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._done: set[int] = set()
        self._models: set[int] = set()
        self._rows = 0  # of the table modules
        self._files: list[str] = []  # in which modules of the script's own are defined, and which are still to be read
        self._known_files: set[str] = set()

    def first_step(self, tracked: Tracked) -> None:
        running = construction.under_way()
        for number, model in self.program.calls.modules():
            if number not in self._models:
                self._models.add(number)
                self._modules_of(number, model, running)

    def _modules_of(self, number: int, model: Any, running: set[tuple[int, int]]) -> None:
        """A module is left out where the one that holds it was made in the same line."""
        sites: dict[str, int | None] = {}
        try:
            parts = list(itertools.islice(model.named_modules(), MAX_PARTS))
        except Exception as error:  # a model that hides its modules
            if raised_by_a_signal_handler(error):
                raise
            return
        for name, part in parts:
            if self._rows >= MAX_ROWS:
                return
            code = getattr(getattr(type(part), "forward", None), "__code__", None)
            filename = code.co_filename if isinstance(code, CodeType) else ""
            if filename not in self._known_files:
                self._known_files.add(filename)
                self._files += [] if is_library(filename) else [filename]
            holder = sites.get(name.rpartition(".")[0]) if name else None
            site = construction.modules.site_of(part, "module", self.program.sites, running)
            sites[name] = holder if site is None else site
            if site is not None and site != holder:
                self._rows += 1
                row = {"model": number, "module": name, "kind": type(part).__name__, "made_at": site}
                self.context.emit("modules", row)

    def finished(self) -> None:
        self._read_forwards()

    def _read_forwards(self) -> None:
        files, self._files = self._files, []
        for filename in files:
            tree = parsed(filename)
            for role, line, function in lines_of_attention(tree)[:MAX_SITES] if tree is not None else ():
                self.program.sites.add(role, filename, line, function)

    def every_second(self, row: dict[str, Any]) -> None:
        self._read_forwards()
        site = self.progress.backward_site
        if site is None or site in self._done or len(self._done) >= MAX_SITES:
            return
        self._done.add(site)
        place = self.program.sites.place(site)
        if place is None:
            return
        filename, line = place
        tree = parsed(filename)
        for role, at, function in lines_of_loop(tree, line)[:MAX_SITES] if tree is not None else ():
            self.program.sites.add(role, filename, at, function)


def parsed(filename: str) -> ast.Module | None:
    """The text of a file; None if it cannot be read, or is not what was run."""
    lines = linecache.getlines(filename)
    if not 0 < len(lines) <= MAX_LINES:
        return None
    try:
        return ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return None


def lines_of_attention(tree: ast.Module) -> list[tuple[str, int, str]]:
    """Role, line and function of every softmax in a function that multiplies matrices as well."""
    found = []
    for scope in ast.walk(tree):
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
            nodes = list(_all(scope))
            calls = [(one, _name(one.func)) for one in nodes if isinstance(one, ast.Call)]
            multiplies = any(name in PRODUCTS for _, name in calls)
            multiplies |= any(isinstance(one, ast.MatMult) for one in nodes)
            found += [
                ("attention", one.func.end_lineno or one.lineno, scope.name)
                for one, name in calls
                if multiplies and name == "softmax"
            ]
    return found


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", "") or getattr(function, "id", "")


def lines_of_loop(tree: ast.Module, backward: int) -> list[tuple[str, int, str]]:
    """Role, line and function of every call of `zero_grad` in the function that has a backward in line `backward`."""
    scope = _around(tree, backward)
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
