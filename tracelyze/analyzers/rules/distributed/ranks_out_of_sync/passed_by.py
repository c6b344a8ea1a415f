"""A DistributedDataParallel that the script makes and never calls: the line that calls something else in its place."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.rules.distributed.ranks_out_of_sync import tensors
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.called import assigned
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Location
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff

_TARGET: Final = re.compile(r"\s*(?P<name>[A-Za-z_][\w.]*)\s*(?::[^=]+)?=(?!=)")
_READS: Final = "parameters|named_parameters|state_dict|load_state_dict|train|eval|modules|named_modules|buffers|to"
"""What is asked of the module inside a wrapper, and computes nothing with it."""


@dataclass(frozen=True)
class PassedBy:
    """`made_at`: the line that makes the wrapper. `called_at`: the line that calls the module inside of it as it
    trains, its edit, and that line with the wrapper's call as an example, as far as they are known."""

    made_at: Location
    called_at: Location | None = None
    diff: Diff | None = None
    example: str = ""
    beside: tuple[int, int] = (0, 0)
    """Where another wrapper is called: how many tensors differ, and how many are equal."""

    def title(self, ranks: int) -> str:
        """What drifts apart, in a line."""
        name = assigned(self.made_at) or "the wrapper"
        return f"{name} is never called: the weights of {plural(ranks, 'rank')} drift apart"

    def summary(self) -> str:
        """Why nothing is averaged, behind "they differ, by ... in the end: "."""
        instead = "by `.module`, by the variable that was wrapped, or by another method than forward"
        where = f"in line {self.called_at.line}" if self.called_at is not None else instead
        apart, equal = self.beside
        those = f"those of {plural(apart, 'tensor')}, while {plural(equal, 'tensor')} inside of another " * bool(apart)
        those += f"{tensors.DDP} {'is' if equal == 1 else 'are'} equal. " * bool(apart)
        return (
            f"{those}{'L' if those else 'l'}ine {self.made_at.line} makes a {tensors.DDP}, but no call went through "
            "it. It only averages gradients "
            f"of calls that go through it; here the module inside it is called instead, {where}. Each rank trains a "
            "model of its own."
        )

    def fix(self) -> str:
        """What to call."""
        return (
            f"Call {_name(self.made_at)}(inputs) itself in the training step. What another method computes goes into "
            "the model's forward."
        )

    def code(self) -> str:
        """The call, by the wrapper's own name."""
        return self.example or f"outputs = {_name(self.made_at)}(inputs)  # not the module inside it"


def of(process: Process) -> PassedBy | None:
    """None where a wrapper was called, and where none was made, or several were."""
    return None if tensors.are_wrapped(process) else _only(process)


def beside_another(process: Process, others: Sequence[Process], equal: float) -> PassedBy | None:
    """The only wrapper that was passed by where another one is called, if what was called by itself holds as many
    tensors as differ between ranks."""
    if not tensors.are_wrapped(process):
        return None
    apart, same = tensors.told_apart(process, others, equal)
    alone = [row["parameters"] or 0 for row in process.models.records() if row["name"] != tensors.DDP]
    if not apart or not same or len(apart) not in (*alone, sum(alone)):
        return None
    found = _only(process)
    return found and replace(found, beside=(len(apart), len(same)))


def _only(process: Process) -> PassedBy | None:
    made = process.locations("wrapper")
    if len(made) != 1:
        return None
    name = _name(made[0])
    called = _called_at(process, name)
    diff = _through_the_wrapper(process, called, name)
    return PassedBy(made[0], called, diff, "" if diff else _called_whole(process, called, name))


def _name(made: Location) -> str:
    found = _TARGET.match(made.source)
    return found["name"] if found is not None else "the wrapper"


def _called_at(process: Process, name: str) -> Location | None:
    """The only line in the function that calls backward which computes with the module inside, by `.module`; else the
    only such line of a function that calls a model as it trains; else the only line beside the backward that does."""
    backwards = process.locations("backward")
    backward = backwards[0] if len(backwards) == 1 else None
    if backward is None:
        return None
    inside = re.compile(rf"(?<![\w.]){re.escape(name)}\.module(?:\.(?!(?:{_READS})\()\w+)*\(")
    lines = recorded_text.of_function(process, backward)
    found = [number for number, line in sorted(lines.items()) if inside.search(line) and number <= backward.line]
    if len(found) == 1:
        return backward.at(found[0], lines[found[0]])
    elsewhere = [] if found else _in_functions(process, inside)
    if elsewhere:
        return elsewhere[0] if len(elsewhere) == 1 else None
    calls = [one for one in process.locations("training-call") if one.file_function == backward.file_function]
    calls = list({one.line: one for one in calls}.values())
    return calls[0] if len(calls) == 1 and not found else None


def _in_functions(process: Process, inside: re.Pattern[str]) -> list[Location]:
    """The lines with such a call in functions that call a model as it trains."""
    found: dict[tuple[str, int], Location] = {}
    for one in process.locations("training-call"):
        for number, line in recorded_text.of_function(process, one).items():
            if inside.search(line):
                found[one.file, number] = one.at(number, line)
    return list(found.values())


def _called_whole(process: Process, called: Location | None, name: str) -> str:
    """The line as an example, with the wrapper's call in place of that of another method of the module inside."""
    own = own_statement.at(process, called)
    if own is None or not own.is_whole:
        return ""
    calls = [node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)]
    calls = [node for node in calls if own.parsed.text_of(node.func).startswith(f"{name}.module.")]
    method = calls[0].func.attr if len(calls) == 1 and isinstance(calls[0].func, ast.Attribute) else ""
    changed = own.parsed.with_parts({calls[0].func: name}) if method else ""
    return f"{own.dedented(changed)}  # forward has to compute what {method} does" if changed else ""


def _through_the_wrapper(process: Process, called: Location | None, name: str) -> Diff | None:
    """The line with the wrapper's call in place of `wrapper.module(x)` or `wrapper.module.forward(x)`."""
    own = own_statement.at(process, called)
    if own is None:
        return None
    past = (f"{name}.module", f"{name}.module.forward")
    calls = [node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)]
    calls = [node for node in calls if own.parsed.text_of(node.func) in past]
    return own.changed(own.parsed.with_parts({node.func: name for node in calls})) if calls else None
