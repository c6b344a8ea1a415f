"""A statement of the user's program as Python reads it: the calls in it, and its text with some parts replaced."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracelyze.diagnosis import Location


@dataclass(frozen=True)
class ParsedLine:
    """A statement of one line or several, or the head of a block (`for`, `with`, `if`)."""

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
        begin, end = self._span(node)
        return self.text.encode()[begin:end].decode()

    def operand(self, node: ast.expr) -> str:
        """A part of the line as it is written, in brackets where something put behind or beside it would take only a
        part of it."""
        return self.text_of(node) if is_operand(node) else f"({self.text_of(node)})"

    def with_parts(self, parts: Mapping[ast.expr, str]) -> str:
        """The line with other text in place of some parts, of which none lies within another."""
        line = self.text.encode()
        for node, text in sorted(parts.items(), key=lambda part: self._span(part[0]), reverse=True):
            begin, end = self._span(node)
            line = line[:begin] + text.encode() + line[end:]
        return line.decode()

    def with_argument(self, call: ast.Call, name: str, value: str, position: int | None = None) -> str | None:
        """The statement with one argument of a call set, and all others as they stand; `position`: where it may also
        stand without its name. None where `*sequence` or `**options` may set it already."""
        before = call.args[:position] if position is not None else []
        if any(isinstance(one, ast.Starred) for one in (before if position is not None else call.args)):
            return None
        if position is not None and len(call.args) > position:
            given = call.args[position]
            return None if isinstance(given, ast.Starred) else self.with_parts({given: value})
        for one in call.keywords:
            if one.arg == name:
                return self.with_parts({one.value: value})
        if any(one.arg is None for one in call.keywords):
            return None
        only = call.args[0] if len(call.args) == 1 and not call.keywords else None
        if isinstance(only, ast.GeneratorExp) and self._span(only)[1] == self._span(call)[1]:  # their brackets are one
            return self.with_parts({only: f"({self.text_of(only)}, {name}={value})"})
        end = self._span(call)[1] - len(")")
        text = self.text.encode()[:end].decode()
        inside, rest = text.rstrip(), self.text.encode()[end:].decode()
        gap, last = text[len(inside) :], inside.rpartition("\n")[2]
        if inside.endswith(",") and "\n" in gap and "\n" in inside and "#" not in last:  # a line for each argument
            return f"{inside}\n{last[: len(last) - len(last.lstrip())]}{name}={value},{gap}{rest}"
        comma = "" if inside.endswith(("(", ",")) else ","
        space = "" if inside.endswith("(") else " "
        return None if "#" in inside.rpartition("\n")[2] else f"{inside}{comma}{space}{name}={value}{rest}"

    def _span(self, node: ast.expr) -> tuple[int, int]:
        """First and last byte of a part."""
        lines = self.text.encode().split(b"\n")
        begins = [sum(len(line) + 1 for line in lines[:at]) for at in range(len(lines))]
        last, column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return begins[node.lineno - 1] + node.col_offset, begins[last - 1] + column


def parse(text: str) -> ParsedLine | None:
    """The statement without its indentation; None where it is only a part of one, or several."""
    for whole in (text, f"{text} pass"):  # the head of a block needs a body
        try:
            tree = ast.parse(whole)
        except (SyntaxError, ValueError):
            continue
        return ParsedLine(text, tree) if len(tree.body) == 1 else None
    return None


def of(place: Location | None) -> ParsedLine | None:
    """The statement at a place, as far as its one line says (`own_statement.at` reads on where it goes on); None where
    there is no place."""
    return parse(place.source) if place is not None else None


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
