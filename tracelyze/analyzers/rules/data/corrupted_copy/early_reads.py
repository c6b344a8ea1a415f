"""Buffers that are read while something is still under way into them: an irecv, or a collective with async_op=True.

That the read stands before the wait, in the same block, is read off the script; that it ran, off where the training
thread was seen. What the read got is not known: what the buffer held before, what was sent, or a part of each.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import is_function_of_torch, name_of
from tracelyze.diagnosis import Diff, Evidence, Finding, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

_LOOKED: Final = re.compile(r"\birecv\s*\(|\basync_op\s*=\s*True\b")
RAN: Final = ("sampled", "forward", "training-call", "loss", "backward", "step", "read", "clip")  # seen as they ran
WAITS: Final = ("wait", "wait_all", "waitall", "synchronize", "barrier", "result")
READS: Final = frozenset(
    ("clone", "item", "tolist", "sum", "mean", "max", "min", "norm", "argmax", "std", "var", "abs", "any", "all", "pow")
) | {"add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "matmul", "softmax", "log_softmax", "relu", "sigmoid",
     "tanh", "exp", "log", "sqrt"}  # fmt: skip
"""Methods that need the values. Views and sizes do not, nor does what may hand out the tensor itself, as `to`."""
TAKES: Final = frozenset(("cat", "stack", "allclose", "equal"))  # functions of torch that do, beside those


class EarlyRead(NamedTuple):
    """`begins`: the statement that hands the buffer over, `reads`, `waits`: in order, in one block."""

    buffer: str
    begins: OwnStatement
    reads: OwnStatement
    waits: OwnStatement
    function: str


def find(process: Process) -> EarlyRead | None:
    """The first such read of a function that was seen to run, in a job of several ranks."""
    if process.world_size < 2:
        return None
    for line in process.locations("under-way"):
        own = own_statement.at(process, line) if _has_run(process, line) else None
        if own is not None and own.stands and _LOOKED.search(own.text):
            found = _read(process, line, own)
            if found is not None:
                return found
    return None


def _has_run(process: Process, line: Location) -> bool:
    return bool(seen_lines(process, line.file_function) & recorded_text.of_function(process, line).keys())


def seen_lines(process: Process, function: tuple[str, str]) -> set[int]:
    """The lines that were seen to run in functions of this file and name, as each module's `forward`."""
    return {one.line for role in RAN for one in process.locations(role) if one.file_function == function}


def _read(process: Process, line: Location, own: OwnStatement) -> EarlyRead | None:
    call, statement = _call(own), own.parsed.statement
    if call is None or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    given = call.args[0] if call.args else next((one.value for one in call.keywords if one.arg == "tensor"), None)
    work, buffer = own.parsed.text_of(statement.targets[0]), own.parsed.text_of(given) if given is not None else ""
    reads = None
    for following in _following(process, line, own):
        if code_of(following.text).strip() == f"{work}.wait()":
            return EarlyRead(buffer, own, reads, following, line.function) if reads is not None else None
        if following.parsed.calls(*WAITS) or _mentions(following, work) or _assigns(following, buffer):
            return None
        reads = reads or (following if _needs(following, buffer) else None)
    return None


def _call(own: OwnStatement) -> ast.Call | None:
    """What begins: an irecv, or a call that is told async_op=True."""
    value = getattr(own.parsed.statement, "value", None)
    return value if isinstance(value, ast.Call) else None


def _following(process: Process, line: Location, own: OwnStatement) -> Iterator[OwnStatement]:
    """The statements behind one, in its block, up to the first that begins a block of its own."""
    lines = recorded_text.around(process, line)
    number = own.line + own.text.count("\n") + 1
    while number in lines:
        text = lines[number]
        if not text.strip() or text.strip().startswith("#"):
            number += 1
            continue
        here = line.at(number, text)
        one = own_statement.at(process, here) if text[: recorded_text.indent_of(text)] == own.indent else None
        if one is None or one.line != number or not one.is_whole or not one.stands:
            return
        yield one
        number += one.text.count("\n") + 1


def _mentions(own: OwnStatement, name: str) -> bool:
    return any(own.parsed.text_of(one) == name for one in _expressions(own))


def _assigns(own: OwnStatement, name: str) -> bool:
    """Whether the name stands for something else from here on."""
    targets = getattr(own.parsed.statement, "targets", [])
    return any(own.parsed.text_of(one) in (name, name.partition(".")[0]) for one in targets)


def _needs(own: OwnStatement, buffer: str) -> bool:
    """Whether a statement needs what the buffer holds."""

    def is_it(node: ast.expr) -> bool:
        return own.parsed.text_of(node) == buffer

    if isinstance(own.parsed.statement, ast.AugAssign) and is_it(own.parsed.statement.target):
        return True
    for node in _expressions(own):
        if isinstance(node, ast.BinOp) and (is_it(node.left) or is_it(node.right)):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, of_torch = name_of(node.func), is_function_of_torch(node.func)
            if not of_torch and name in READS and is_it(node.func.value):
                return True
            if (name == "copy_" or (of_torch and name in READS | TAKES)) and any(map(is_it, node.args)):
                return True
    return False


def _expressions(own: OwnStatement) -> Iterator[ast.expr]:
    return (one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.expr) and hasattr(one, "lineno"))


def finding(process: Process, rule: str, found: EarlyRead) -> Finding:
    """What is said of it, with the wait in front of the read."""
    begins, reads, waits = (one.line for one in (found.begins, found.reads, found.waits))
    optimization = process.longest if process.optimizations else None
    call = _call(found.begins)
    receives = call is not None and name_of(call.func) == "irecv"
    under_way = "what it receives has arrived" if receives else "its collective is over"
    result = "belongs to other inputs than those that were sent" if receives else "is not what the ranks put together"
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=f"A buffer is read before {under_way}, in {found.function}",
        summary=(
            f"Line {begins} begins to fill `{found.buffer}`, and only line {waits} waits for that. Line {reads}, "
            f"between them, reads `{found.buffer}` already: it may get what the buffer held before, as of the step "
            f"before, or a part of it. What is computed from that {result}."
        ),
        fix=f"Wait first, and read `{found.buffer}` then.",
        fix_code=f"{found.waits.text}\n{found.reads.text}",
        evidence=[
            Evidence("line that reads", reads, role="setting"),
            Evidence("line that waits", waits, role="setting"),
        ],
        location=Location(found.reads.file, reads, found.function, found.reads.text.split("\n")[0]),
        charts=pictures.loss(optimization) if optimization is not None else [],
        false_alarm="A buffer whose old content is meant to be used while the next one arrives in another.",
        diff=_waits_first(process, found),
        verify="Record the run again: no buffer is read before it is full.",
    )


def _waits_first(process: Process, found: EarlyRead) -> Diff | None:
    """The lines from the read to the wait, with the wait in front."""
    place = Location(found.reads.file, found.reads.line, found.function, found.reads.text.split("\n")[0])
    lines = recorded_text.around(process, place)
    numbers = range(found.reads.line, found.waits.line)
    if any(number not in lines for number in (*numbers, found.waits.line)):
        return None
    before = [lines[number] for number in numbers]
    return Diff(place.file, place.line, [*before, lines[found.waits.line]], [lines[found.waits.line], *before])
