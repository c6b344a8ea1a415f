"""A DistributedDataParallel that the script makes and never calls: the line that calls something else in its place."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.computed.ranks.averaging import tensors
from tracelyze.analyzers.evidence import recorded_text
from tracelyze.analyzers.evidence.called import assigned
from tracelyze.analyzers.evidence.editing import own_statement
from tracelyze.diagnosis import Location
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff

_TARGET: Final = re.compile(r"\s*(?P<name>[A-Za-z_][\w.]*)\s*(?::[^=]+)?=(?!=)")
_READS: Final = "parameters|named_parameters|state_dict|load_state_dict|train|eval|modules|named_modules|buffers|to"
"""What is asked of the module inside a wrapper, and computes nothing with it."""


@dataclass(frozen=True)
class PassedBy:
    """`made_at`: the line that makes the wrapper. `called_at`: the line that calls the module inside of it as it
    trains, and its edit, as far as they are known."""

    made_at: Location
    called_at: Location | None = None
    diff: Diff | None = None

    def title(self, ranks: int) -> str:
        """What drifts apart, in a line."""
        name = assigned(self.made_at) or "the wrapper"
        return f"{name} is never called: the weights of {plural(ranks, 'rank')} drift apart"

    def summary(self) -> str:
        """Why nothing is averaged, behind "they differ, by ... in the end: "."""
        instead = "by `.module`, by the variable that was wrapped, or by another method than forward"
        where = f"in line {self.called_at.line}" if self.called_at is not None else instead
        return (
            f"line {self.made_at.line} makes a {tensors.DDP}, but no call went through it. It only averages gradients "
            f"of calls that go through it; here the module inside it is called instead, {where}. What is saved is one "
            "rank's model."
        )

    def fix(self) -> str:
        """What to call."""
        return (
            f"Call {_name(self.made_at)}(inputs) itself in the training step. What another method computes goes into "
            "the model's forward."
        )

    def code(self) -> str:
        """The call, by the wrapper's own name."""
        return f"outputs = {_name(self.made_at)}(inputs)  # not the module inside it"


def of(process: Process) -> PassedBy | None:
    """None where a wrapper was called, and where none was made, or several were."""
    made = [] if tensors.are_wrapped(process) else process.locations("wrapper")
    if len(made) != 1:
        return None
    called = _called_at(process, _name(made[0]))
    return PassedBy(made[0], called, _through_the_wrapper(process, called, _name(made[0])))


def _name(made: Location) -> str:
    found = _TARGET.match(made.source)
    return found["name"] if found is not None else "the wrapper"


def _called_at(process: Process, name: str) -> Location | None:
    """The only line in the function that calls backward which computes with the module inside, by `.module`; else the
    only one there that calls a model as it trains."""
    backwards = process.locations("backward")
    backward = backwards[0] if len(backwards) == 1 else None
    if backward is None:
        return None
    inside = re.compile(rf"(?<![\w.]){re.escape(name)}\.module(?:\.(?!(?:{_READS})\()\w+)*\(")
    lines = recorded_text.of_function(process, backward)
    found = [number for number, line in sorted(lines.items()) if inside.search(line) and number <= backward.line]
    if len(found) == 1:
        return Location(backward.file, found[0], backward.function, lines[found[0]].strip())
    calls = [one for one in process.locations("training-call") if one.file_function == backward.file_function]
    calls = list({one.line: one for one in calls}.values())
    return calls[0] if len(calls) == 1 and not found else None


def _through_the_wrapper(process: Process, called: Location | None, name: str) -> Diff | None:
    """The line with the wrapper's call in place of `wrapper.module(x)` or `wrapper.module.forward(x)`."""
    own = own_statement.at(process, called)
    if own is None:
        return None
    past = (f"{name}.module", f"{name}.module.forward")
    calls = [node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)]
    calls = [node for node in calls if own.parsed.text_of(node.func) in past]
    return own.changed(own.parsed.with_parts({node.func: name for node in calls})) if calls else None
