"""Many buffers that are read while something is still under way into them: their requests stand in a list or an
attribute, and are waited for behind the reads, in the same function or in methods of the object that holds them.

As in `early_reads`, the order is read off the recorded text, and that it ran, off where the training was seen.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rules.data.corrupted_copy import early_reads
from tracelyze.analyzers.rules.data.corrupted_copy.functions import (
    MAY_NOT_RUN,
    Known,
    assigned,
    blocks,
    in_order,
    mentions,
    recorded_functions,
    waits,
)
from tracelyze.analyzers.rules.data.corrupted_copy.requests import Begun, begun, element_of, given, needed
from tracelyze.analyzers.script.names import given_in, read_in
from tracelyze.diagnosis import Evidence, Finding, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_CALLED: Final = ("forward", "training-call", "loss")
_MAKE: Final = ("__init__", "reset")  # methods that make the buffers
_OF_OTHERS: Final = frozenset(name for kind in (list, dict, set, str, bytearray) for name in dir(kind)) | {
    "get", "put", "read", "write", "send", "recv", "next", "step", "forward", "backward", "wait", "close", "start",
    "run",
}  # fmt: skip
"""Names of methods that other objects have as well."""


class EarlyTake(NamedTuple):
    """`begun`, the read and the wait, by lines; `function` reads, and `called` is the line that calls it."""

    begun: Begun
    file: str
    reads: int
    text: str
    element: str
    waits: int
    function: str
    called: int | None


class _Method(NamedTuple):
    """A method that reads a buffer without a wait: the statement, and whether it needs the values or hands it out."""

    known: Known
    statement: ast.stmt
    element: str
    needs: bool


def find(process: Process) -> EarlyTake | None:
    """The first such read of a function that was seen to run, in a job of several ranks."""
    if process.world_size < 2:
        return None
    for file in dict.fromkeys(place.file for place in process.locations("under-way")):
        functions = recorded_functions(process, file)
        for known in functions:
            if _has_run(process, file, functions, known):
                found = _Scan(process, file, functions, known).find()
                if found is not None:
                    return found
    return None


def _has_run(process: Process, file: str, functions: Sequence[Known], known: Known) -> bool:
    """Whether a line of this very function was seen to run, or one that stands behind the only calls of it."""
    return _was_seen(process, file, functions, known) or _was_called(process, file, functions, known)


def _was_seen(process: Process, file: str, functions: Sequence[Known], known: Known) -> bool:
    following = [one.first for one in functions if one.first > known.first]
    end = known.first + (known.tree.end_lineno or 1) if known.whole else min(following, default=None)
    seen = early_reads.seen_lines(process, (file, known.tree.name))
    return any(line >= known.first and (end is None or line < end) for line in seen)


def _was_called(process: Process, file: str, functions: Sequence[Known], known: Known) -> bool:
    """Whether a function that was seen to run calls a method of this name, which no other function has, in a statement
    of a block of which a later statement was seen to run."""
    name = known.tree.name
    if name in _OF_OTHERS or name.startswith("__") or [one.tree.name for one in functions].count(name) != 1:
        return False
    for one in functions:
        seen = early_reads.seen_lines(process, (file, one.tree.name)) if one is not known else set()
        for block in blocks(one.tree) if seen and _was_seen(process, file, functions, one) else ():
            calls = [at for at, statement in enumerate(block) if _calls(statement, name)]
            if calls and any(one.line(later) in seen for later in block[calls[0] + 1 :]):
                return True
    return False


def _calls(statement: ast.stmt, name: str) -> bool:
    """Whether a statement that cannot leave it out calls a method of this name."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr):
        return False
    inside = list(ast.walk(statement))
    if any(isinstance(one, ast.IfExp | ast.BoolOp | ast.Lambda | ast.comprehension) for one in inside):
        return False
    return any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == name for one in inside
    )


class _Scan:
    """A function that was seen to run, from where something begins to where it is waited for."""

    def __init__(self, process: Process, file: str, functions: Sequence[Known], known: Known) -> None:
        self.file, self.functions, self.known = file, functions, known
        self.calls = {
            int(row["line"]) for row in process.sites.records() if row["file"] == file and row["role"] in _CALLED
        }
        self.held: set[str] = set()

    def find(self) -> EarlyTake | None:
        for block in blocks(self.known.tree):
            for number, statement in enumerate(block):
                own, following = begun(statement, self.known.line(statement)), block[number + 1 :]
                found = self._own(own, following) if own is not None else self._of_object(block, number)
                if found is None and own is not None and own.works.startswith("self."):
                    found = self._at_once(own, following)
                if found is not None:
                    return found
        return None

    def _own(self, own: Begun, following: Sequence[ast.stmt]) -> EarlyTake | None:
        """Requests that this function holds itself."""
        read: tuple[ast.stmt, str] | None = None
        self.held = set()
        for statement, elements in in_order(following, {}):
            if mentions(statement, own.works):
                if not waits(statement) or read is None:
                    return None
                line, text = self.known.line(read[0]), ast.unparse(read[0])
                end = self.known.line(statement)
                return EarlyTake(own, self.file, line, text, read[1], end, self.known.tree.name, None)
            if assigned(statement, own.buffers) or (read is None and waits(statement)):
                return None
            read = read or self._read(statement, own, elements)
        return None

    def _at_once(self, own: Begun, following: Sequence[ast.stmt]) -> EarlyTake | None:
        """A request that the object holds, which another of its methods waits for: the read stands in the one that
        begins it, and nothing that may wait stands between."""
        drains = [one for one in self.functions if one is not self.known and mentions(one.tree, own.works)]
        drains = [one for one in drains if waits(one.tree)]
        self.held = set()
        for statement, elements in in_order(following, {}):
            if mentions(statement, own.works) or assigned(statement, own.buffers) or waits(statement):
                return None
            read = self._read(statement, own, elements)
            if _calls_of_itself(statement) - {own.buffers} or (read is not None and len(drains) != 1):
                return None
            if read is not None:
                line, end = self.known.line(statement), _waiting(drains[0])
                return EarlyTake(own, self.file, line, ast.unparse(statement), "", end, self.known.tree.name, None)
        return None

    def _read(self, statement: ast.stmt, own: Begun, elements: dict[str, str]) -> tuple[ast.stmt, str] | None:
        if isinstance(statement, MAY_NOT_RUN):
            return None
        index = needed(statement, own, elements)
        if index is None and self.known.line(statement) in self.calls:
            index = given(statement, own, elements)
        return None if index is None else (statement, index)

    def _of_object(self, block: Sequence[ast.stmt], number: int) -> EarlyTake | None:
        """Requests that an object holds: `box.post()`, then `box.take(i)`, then `box.drain()`."""
        call = _method_call(block[number])
        poster = self._only(call[1]) if call is not None else None
        own = _posts(poster) if poster is not None else None
        if call is None or own is None or not own.works.startswith("self.") or not own.buffers.startswith("self."):
            return None
        if any(_exchanged(one, own) for one in self.functions):
            return None
        taken: tuple[_Method, int] | None = None
        read = False
        self.held = set()
        for statement, _ in in_order(block[number + 1 :], {}):
            used = _methods_of(statement, call[0])
            if used is None:
                return None
            for name in used:
                method = self._only(name)
                if method is None:
                    return None
                if mentions(method.tree, own.works):
                    return self._told(own, taken, method) if read and taken is not None else None
                takes = None if isinstance(statement, MAY_NOT_RUN) else _takes(method, own)
                if takes is None:
                    return None
                taken, read = taken or (takes, self.known.line(statement)), read or takes.needs
                self.held |= given_in(statement)
            if waits(statement) and not used and not read:
                return None
            read = read or (taken is not None and self._uses(statement))
        return None

    def _told(self, own: Begun, taken: tuple[_Method, int], drain: Known) -> EarlyTake | None:
        if not waits(drain.tree):
            return None
        method, called = taken
        line, text, end = method.known.line(method.statement), ast.unparse(method.statement), _waiting(drain)
        return EarlyTake(own, self.file, line, text, method.element, end, method.known.tree.name, called)

    def _uses(self, statement: ast.stmt) -> bool:
        """Whether a model, or a loss, is called with what a method handed out."""
        if self.known.line(statement) not in self.calls:
            return False
        names = read_in(statement)
        return bool(names & self.held)

    def _only(self, name: str) -> Known | None:
        found = [one for one in self.functions if one.tree.name == name]
        return found[0] if len(found) == 1 else None


def _waiting(drain: Known) -> int:
    """The line of a method that waits."""
    found = [one for one in ast.walk(drain.tree) if isinstance(one, ast.stmt) and waits(one)]
    inner = [one for one in found if isinstance(one, ast.Expr)]
    return drain.line((inner or found[-1:])[0])


def _calls_of_itself(statement: ast.stmt) -> set[str]:
    """What of the object a statement calls a method of: `self`, or one of its parts."""
    called = [
        one.func.value
        for one in ast.walk(statement)
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
    ]
    return {ast.unparse(one) for one in called if ast.unparse(one).partition(".")[0] == "self"}


def _posts(known: Known) -> Begun | None:
    """What a method begins and leaves under way."""
    if not known.whole:
        return None
    for number, statement in enumerate(known.tree.body):
        own = begun(statement, known.line(statement))
        if own is not None:
            return own if not any(waits(one) for one in known.tree.body[number + 1 :]) else None
    return None


def _takes(known: Known, own: Begun) -> _Method | None:
    """A method that reads a buffer, or hands it out, and calls nothing that may wait."""
    if not known.whole or waits(known.tree) or any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and ast.unparse(one.func.value) == "self"
        for one in ast.walk(known.tree)
    ):  # fmt: skip
        return None
    for statement, elements in in_order(known.tree.body, {}):
        index = needed(statement, own, elements)
        if index is not None:
            return _Method(known, statement, index, True)
        if isinstance(statement, ast.Return) and statement.value is not None:
            parts = (element_of(one, own, elements) for one in ast.walk(statement.value))
            handed = next((one for one in parts if one is not None), None)
            return None if handed is None else _Method(known, statement, handed, False)
    return None


def _exchanged(known: Known, own: Begun) -> bool:
    """Whether a method gives the buffers' name to others, as where two lists of them are used in turn."""
    return known.tree.name not in _MAKE and any(
        assigned(one, own.buffers) for one in ast.walk(known.tree) if isinstance(one, ast.stmt)
    )


def _method_call(statement: ast.stmt) -> tuple[str, str] | None:
    """The object and the method of a statement that is nothing but a call."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        return ast.unparse(call.func.value), call.func.attr
    return None


def _methods_of(statement: ast.stmt, owner: str) -> list[str] | None:
    """The methods of an object that a statement calls; None where it does something else with it."""
    called = [
        one.func for one in ast.walk(statement)
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and ast.unparse(one.func.value) == owner
    ]  # fmt: skip
    uses = [one for one in ast.walk(statement) if isinstance(one, ast.expr) and ast.unparse(one) == owner]
    return [one.attr for one in called] if len(called) == len(uses) else None


def finding(process: Process, rule: str, found: EarlyTake) -> Finding:
    """What is said of it."""
    own = found.begun
    what = f"`{own.buffers}`" if not own.many or own.part else f"the tensors in `{own.buffers}`"
    if own.part:
        what = f"each `{own.part.removeprefix('.')}` of {what}"
    full = "what they receive has arrived" if own.receives else "their collectives are over"
    if not own.many:
        full = "what it receives has arrived" if own.receives else "its collective is over"
    read, held = ("them", "they held") if own.many else ("it", "it held")
    result = (
        "belongs to other inputs than those that were sent" if own.receives else "is not what the ranks put together"
    )
    work = f"{own.works}[{found.element}]" if own.many and found.element else own.works
    called = f", which line {found.called} calls," if found.called is not None else ""
    wait = (
        f"{own.call or work}.wait()" if found.element or not own.many else f"for work in {own.works}:\n    work.wait()"
    )
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=f"{'Buffers are' if own.many else 'A buffer is'} read before {full}, in {found.function}",
        summary=(
            f"Line {own.line} begins to fill {what}, and only line {found.waits} waits for that. Before it does, line "
            f"{found.reads}{called} reads {read}: it may get what {held} (zeros, or the values of the step before), "
            f"or a part of that. What is computed from it {result}."
        ),
        fix=f"Wait in front of line {found.reads} for what it reads, and no longer in line {found.waits}"
        + (": with Gloo a second wait() for one message never returns." if own.receives else "."),
        fix_code=f"{wait}  # {'in place of line ' + str(own.line) if own.call else 'once'}\n{found.text}"
        if "\n" not in wait
        else f"{wait}\n{found.text}",
        evidence=[
            Evidence("line that reads", found.reads, role="setting"),
            Evidence("line that waits", found.waits, role="setting"),
        ],
        location=Location(found.file, found.reads, found.function, found.text.split("\n")[0]),
        charts=pictures.loss(process.longest) if process.optimizations else [],
        false_alarm="Buffers whose old content is meant to be used while the next one arrives in others.",
        verify="Record the run again: no buffer is read before it is full.",
    )
