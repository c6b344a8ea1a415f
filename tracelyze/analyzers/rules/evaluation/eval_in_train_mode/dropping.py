"""Dropout that drops in eval mode: a function that is not told the mode, or a module that `eval()` does not reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.rules.evaluation.eval_in_train_mode import dropout_call
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.storing import registered_layers

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

_NAMED: Final = r"\b(?:Feature)?(?:Alpha)?Dropout[123]?d?\("
_EITHER: Final = (
    "Hand the mode to a function that drops (training=self.training). Make a Dropout module in __init__, not in "
    "forward, and keep it as an attribute or in nn.ModuleList: eval() reaches no other."
)
_EITHER_WAY: Final = (
    "x = F.dropout(x, p=0.1, training=self.training)  # dropout_p=0.1 if self.training else 0.0\n"
    "self.drops = nn.ModuleList(self.drops)  # in __init__, below the line that fills a list"
)
_REGISTER: Final = (
    "Keep them in nn.ModuleList, or nn.ModuleDict for a dictionary: eval(), train(), to(device) and state_dict() skip "
    "what a Python list or dictionary holds."
)
_REGISTERED: Final = "self.drops = nn.ModuleList(self.drops)  # below the line that fills it"
_ONCE: Final = "Make the Dropout once, in __init__, and call it in forward: eval() then reaches it."
_MADE_ONCE: Final = "self.drop = nn.Dropout(0.1)  # in __init__\nx = self.drop(x)  # in forward"


class Dropping(NamedTuple):
    """What the finding says of it."""

    title: str
    said: str
    """A sentence about the lines, with a space before it; empty where they are not known."""
    fix: str
    code: str
    place: Location | None = None
    diff: Diff | None = None


def of(process: Process) -> Dropping:
    """The lines of the script that drop so; neither is named where both kinds could be it."""
    functions, listed, made = dropout_call.lines(process), _only(process, "unregistered"), _only(process, "made-anew")
    if len([one for one in (functions, listed, made) if one]) == 1:
        if functions:
            return _by_function(process, functions)
        return _in_list(process, listed[0]) if listed else _made_anew(made[0])
    return Dropping("Dropout stays active in validation although the model is in eval mode", "", _EITHER, _EITHER_WAY)


def _only(process: Process, role: str) -> list[Location]:
    """The only line of this role, if it makes Dropout modules."""
    found = script_lines.only(process, role, _NAMED)
    return [found] if found is not None else []


def _by_function(process: Process, lines: list[Location]) -> Dropping:
    title = "Functional dropout stays active in validation: it ignores eval mode"
    code, diff = dropout_call.example(process, lines), dropout_call.by_mode(process, lines)
    return Dropping(title, dropout_call.said(lines), dropout_call.FIX, code, lines[0], diff)


def _in_list(process: Process, made: Location) -> Dropping:
    line = registered_layers.listed(process, made)
    is_kept = line is made and made.source.startswith("return ")  # in a list that another line fills
    does = "makes Dropout modules for" if is_kept else "puts Dropout modules into"
    said = (
        f" Line {line.line} {does} a Python list or dictionary, where torch does not look for them: "
        "eval() does not reach them, and they stay in train mode."
    )
    title = "Dropout in a list or dictionary stays active in validation: eval() does not reach it"
    own = own_statement.at(process, line)
    maker = "" if line is made else made.function
    text = registered_layers.text(process, own, line, maker) if own is not None else ""
    diff = own.changed(text) if own is not None else None
    return Dropping(title, said, _REGISTER, own.dedented(text) if own is not None and text else _REGISTERED, line, diff)


def _made_anew(line: Location) -> Dropping:
    title = "Dropout stays active in validation: forward makes it anew, in train mode"
    said = (
        f" Line {line.line} makes a Dropout in forward: a new module is in train mode, whatever the mode of the model."
    )
    return Dropping(title, said, _ONCE, _MADE_ONCE, line)
