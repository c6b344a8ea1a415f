"""One line of the user's program as Python reads it: the calls in it, and the line with some of its parts replaced."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ParsedLine:
    """A line that is a statement of its own, or the head of a block (`for`, `with`, `if`)."""

    text: str
    tree: ast.Module = field(repr=False)

    @property
    def statement(self) -> ast.stmt:
        """What the line says."""
        return self.tree.body[0]

    def calls(self, *names: str) -> list[ast.Call]:
        """The calls of functions, methods or classes with one of these names, wherever they are kept."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and name_of(node.func) in names]

    def text_of(self, node: ast.expr) -> str:
        """A part of the line as it is written."""
        begin, end = _span(node)
        return self.text.encode()[begin:end].decode()

    def operand(self, node: ast.expr) -> str:
        """The same, in brackets where something put behind or beside it would take only a part of it."""
        return self.text_of(node) if is_operand(node) else f"({self.text_of(node)})"

    def with_parts(self, parts: Mapping[ast.expr, str]) -> str:
        """The line with other text in place of some parts, of which none lies within another."""
        line = self.text.encode()
        for node, text in sorted(parts.items(), key=lambda part: _span(part[0]), reverse=True):
            begin, end = _span(node)
            line = line[:begin] + text.encode() + line[end:]
        return line.decode()


def parse(text: str) -> ParsedLine | None:
    """The line without its indentation; None where it is only a part of a statement, or several."""
    for whole in (text, f"{text} pass"):  # the head of a block needs a body
        try:
            tree = ast.parse(whole)
        except (SyntaxError, ValueError):
            continue
        return ParsedLine(text, tree) if len(tree.body) == 1 else None
    return None


def name_of(node: ast.expr) -> str:
    """The last name of `a.b.c`; empty for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_function_of_torch(node: ast.expr) -> bool:
    """Whether what is called is a function: `torch.sqrt`, `F.softmax`, `softmax`; and not a tensor's method."""
    holder = node.value if isinstance(node, ast.Attribute) else None
    return isinstance(node, ast.Name) or (holder is not None and name_of(holder) in ("torch", "F", "functional"))


def is_operand(node: ast.expr) -> bool:
    """Whether an expression needs no brackets, wherever it is put."""
    return isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant)


def _span(node: ast.expr) -> tuple[int, int]:
    """First and last byte of a part, which stands on the one line that there is."""
    return node.col_offset, node.end_col_offset or node.col_offset
