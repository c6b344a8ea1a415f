"""Names in an example that the recorded lines around its place do not know: the example says that they are not the
script's own, so that nobody pastes it as if they were.
"""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import edits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

NOTE: Final = "# your own names in place of: "
"""How the line begins that names them; tests read it."""
_NO_VARIABLES: Final = frozenset(dir(builtins)) | {
    "torch", "nn", "F", "np", "numpy", "math", "random", "os", "copy", "itertools", "dist", "tracelyze", "checkpoint",
}  # fmt: skip
"""What an import names, which is no part of the script's own words; a class, with a capital, is imported as well."""
_WORD: Final = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\b(?!=(?!=))")
_ASSIGNED: Final = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s*(?:=(?!=)|,)")
_STRING: Final = re.compile(r"""(?<![A-Za-z])[rb]?(?:"[^"\n]*"|'[^'\n]*')""")
_MOST: Final = 6  # more of them make an example a sketch, of which nobody expects the script's names


def noted(code: str, process: Process, location: Location | None) -> str:
    """The example, below a comment with the names that the script does not have there, as far as its lines are known."""
    unknown = [name for name in foreign(code) if name not in _known(process, location)] if location else []
    if not unknown:
        return code
    shown = ", ".join(unknown[:_MOST]) + (", ..." if len(unknown) > _MOST else "")
    return f"{NOTE}{shown}\n{code}"


def foreign(code: str) -> list[str]:
    """Names that the example takes from its surroundings, or leaves to them, in the order in which they stand."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return []  # commands of a shell, or a part of a statement
    names = _Names()
    names.block(tree.body)
    left = [name for name in names.assigned if name not in names.read_inside]
    found = dict.fromkeys([*names.free, *left])
    return [name for name in found if name not in _NO_VARIABLES and not name[0].isupper()]


@dataclass
class _Names(ast.NodeVisitor):
    """What a block reads before it has assigned it, and what it assigns."""

    free: list[str] = field(default_factory=list)
    assigned: list[str] = field(default_factory=list)
    imported: set[str] = field(default_factory=set)
    read_inside: set[str] = field(default_factory=set)

    def block(self, body: Iterable[ast.AST]) -> None:
        for statement in body:
            self.visit(statement)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.assigned.append(node.id)
        elif node.id in self.assigned or node.id in self.imported:
            self.read_inside.add(node.id)
        else:
            self.free.append(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.block([node.value, *node.targets])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if isinstance(node.target, ast.Name):
            self.visit_Name(ast.Name(node.target.id, ast.Load()))
        else:
            self.visit(node.target)

    def visit_For(self, node: ast.For) -> None:
        self.block([node.iter, node.target])
        self.read_inside |= {one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)}
        self.block(node.body)

    def visit_comprehensions(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        inner = _Names(imported=self.imported | set(self.assigned))
        for one in node.generators:
            inner.block([one.iter, one.target, *one.ifs])
        inner.block([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        self.free += inner.free
        self.read_inside |= inner.read_inside & set(self.assigned)

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_comprehensions

    def visit_functions(self, node: ast.FunctionDef | ast.Lambda) -> None:
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        inner = _Names(imported=self.imported | set(self.assigned) | {one.arg for one in every if one is not None})
        if isinstance(node, ast.FunctionDef):
            self.block(node.decorator_list)
            self.imported.add(node.name)
            inner.imported.add(node.name)
        inner.block(node.body if isinstance(node, ast.FunctionDef) else [node.body])
        self.free += inner.free
        self.read_inside |= inner.read_inside & set(self.assigned)

    visit_FunctionDef = visit_Lambda = visit_functions

    def visit_alias(self, node: ast.alias) -> None:
        self.imported.add((node.asname or node.name).split(".")[0])


def _known(process: Process, location: Location) -> set[str]:
    """Names that stand in the recorded lines of the function, and those that lines of its module assign."""
    words = {word for line in edits.recorded_lines(process, location).values() for word in _words(line)}
    for row in process.sites.records():
        if row["file"] != location.file:
            continue
        for line in str(row["excerpt"] or row["source"] or "").split("\n"):
            if line[:1].strip() or row["function"] == "<module>":
                words |= _words(line)
    return words | _words(location.source)


def _words(line: str) -> set[str]:
    text = _STRING.sub("''", line).split("  #")[0]
    return set(_WORD.findall(text)) | set(_ASSIGNED.findall(text.split("(")[0]))
