"""A reward function that joins the prompt and its completion before it looks at the text: what the prompt holds, such
as the tags that its instruction names, then counts for each completion."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_ASKED: Final = re.compile(r"prompt|question|query|instruction", re.IGNORECASE)
_ANSWERED: Final = re.compile(r"complet|respon|answer|repl(?:y|ies)|generat|output", re.IGNORECASE)


def joining(process: Process, gives: Location | None) -> Location | None:
    """The only line of a reward function that makes one text of a prompt and what was answered. `gives`: the line that
    begins the function."""
    lines = recorded_text.of_file(process, gives.file) if gives is not None else {}
    if gives is None or gives.line not in lines or not re.match(r"\s*(?:async )?def\b", lines[gives.line]):
        return None
    depth, found, at = recorded_text.indent_of(lines[gives.line]), list[Location](), gives.line + 1
    while at in lines and (not lines[at].strip() or recorded_text.indent_of(lines[at]) > depth):
        line = parsed_line.parse(lines[at].strip())
        if line is not None and any(map(_joins, ast.walk(line.tree))):
            found.append(gives.at(at, lines[at]))
        at += 1
    return found[0] if len(found) == 1 else None


def _joins(node: ast.AST) -> bool:
    """Whether a text is put together of both: `f"{prompt} {completion}"`, `prompt + completion`."""
    if isinstance(node, ast.JoinedStr):
        parts = [one.value for one in node.values if isinstance(one, ast.FormattedValue)]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    else:
        return False
    names = [ast.unparse(one) for one in parts]
    asked = [at for at, name in enumerate(names) if _ASKED.search(name)]
    return any(_ANSWERED.search(name) for at, name in enumerate(names) if at not in asked) and bool(asked)
