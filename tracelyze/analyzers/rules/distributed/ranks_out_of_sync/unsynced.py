"""Gradients that stay on their rank, as the last backward of a step runs under no_sync(): the line that opens it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.rules.distributed.ranks_out_of_sync import tensors
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.names import names_in
from tracelyze.diagnosis import Location
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Diff

_OPENS: Final = re.compile(r"\bno_sync\s*\(|\.require_backward_grad_sync\s*=")
_CODE: Final = (
    "last = (i + 1) % accum == 0  # the backward right before optimizer.step()\n"
    "with contextlib.nullcontext() if last else model.no_sync():\n"
    "    loss = criterion(model(x), y)\n"
    "    (loss / accum).backward()"
)


@dataclass(frozen=True)
class Unsynced:
    """The only line of the training loop that keeps gradients local, and its edit, where its condition is known.
    `named_at`: the line that gives the condition its value, where another one does."""

    made_at: Location
    diff: Diff | None = None
    named_at: Location | None = None

    def title(self, ranks: int) -> str:
        """What drifts apart, in a line."""
        return f"{plural(ranks, 'rank')} drift apart: line {self.made_at.line} keeps gradients from being averaged"

    def summary(self) -> str:
        """What is not averaged, behind "they differ, by ... in the end: "."""
        return (
            f"line {self.made_at.line} keeps gradients of some backwards local. {tensors.DDP} averages in a "
            "backward outside of no_sync(), what piled up before included; what later backwards of the same step add "
            "stays on its rank. Each rank trains a model of its own."
        )

    def fix(self) -> str:
        """Which backward averages."""
        return (
            f"Let the last backward of each step, the one right before optimizer.step(), run outside of no_sync() "
            f"with its forward: correct the condition of line {(self.named_at or self.made_at).line}."
        )

    def code(self) -> str:
        """The usual condition."""
        return _CODE


def of(process: Process) -> Unsynced | None:
    """None without a wrapper that is called, where not exactly one line beside the backward opens no_sync(), and where
    that line leaves it as the optimizer steps."""
    backwards = process.locations("backward") if tensors.are_wrapped(process) else []
    if len({one.file_function for one in backwards}) != 1:
        return None
    backward = backwards[0]
    lines = recorded_text.of_function(process, backward)
    opens = [at for at, line in lines.items() if _OPENS.search(code_of(line))]
    if len(opens) != 1:
        return None
    place = backward.at(opens[0], lines[opens[0]])
    own, steps = own_statement.at(process, place), process.locations("step")
    condition = _above(lines, steps[0]) if len(steps) == 1 else None
    chosen = [one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.IfExp)] if own is not None else []
    if own is None or condition is None or len(chosen) != 1:
        return Unsynced(place)
    wanted = _wanted(chosen[0], condition)
    if ast.unparse(ast.parse(wanted)) == ast.unparse(chosen[0].test):
        return None
    both = names_in(condition) & names_in(chosen[0].test)  # what the step goes by, too, is right: the choice is not
    named = None if both else _named(process, place, lines, chosen[0].test)
    if named is not None:
        return _by_name(place, named, chosen[0], condition)
    known = names_in(condition) <= names_in(chosen[0].test)
    return Unsynced(place, own.changed(own.parsed.with_parts({chosen[0].test: wanted})) if known else None)


def _named(process: Process, place: Location, lines: dict[int, str], test: ast.expr) -> OwnStatement | None:
    """The only statement of the function that gives the name of a choice its value, `last = i % n == 0`."""
    name = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
    if not isinstance(name, ast.Name):
        return None
    given = [
        at for at, line in lines.items() if re.search(rf"(?<![\w.]){name.id}\s*(?::\s*bool\s*)?[-+&|]?=(?!=)", line)
    ]
    if len(given) != 1 or given[0] >= place.line:
        return None
    own = own_statement.at(process, place.at(given[0], lines[given[0]]))
    statement = own.parsed.statement if own is not None else None
    return own if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None else None


def _by_name(place: Location, named: OwnStatement, chosen: ast.IfExp, condition: ast.expr) -> Unsynced | None:
    """With the statement that gives the name its value, so that the choice is right where the optimizer steps; None
    where it is."""
    statement = named.parsed.statement
    value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    if value is None:
        return Unsynced(place)
    wanted = _wanted(chosen, condition)
    if isinstance(chosen.test, ast.UnaryOp):
        wanted = ast.unparse(_negated(ast.parse(wanted, mode="eval").body))
    if ast.unparse(ast.parse(wanted)) == ast.unparse(value):
        return None
    known = names_in(condition) <= names_in(value)
    at = place.at(named.line, named.text)
    return Unsynced(place, named.changed(named.parsed.with_parts({value: wanted})) if known else None, at)


def _negated(node: ast.expr) -> ast.expr:
    return (
        node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else ast.UnaryOp(ast.Not(), node)
    )


def _wanted(chosen: ast.IfExp, condition: ast.expr) -> str:
    """What a choice between no_sync() and nothing has to ask, where the optimizer steps under this condition."""
    text = ast.unparse(condition)
    if "no_sync" not in ast.unparse(chosen.body):
        return text
    return ast.unparse(ast.parse(f"not ({text})"))


def _above(lines: dict[int, str], step: Location) -> ast.expr | None:
    """The condition of the `if` that the step stands in."""
    depth = recorded_text.indent_of(lines.get(step.line, ""))
    for at in range(step.line - 1, 0, -1):
        text = lines.get(at)
        if text is None or (text.strip() and recorded_text.indent_of(text) < depth):
            head = parsed_line.parse(text.strip()) if text else None
            return head.statement.test if head is not None and isinstance(head.statement, ast.If) else None
    return None
