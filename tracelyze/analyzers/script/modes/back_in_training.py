"""The line that puts a part of a model back into train mode while the model is evaluated, and its edit."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

_TRAINS: Final = re.compile(r"\.train\(\s*(?:(?:mode\s*=\s*)?True\s*)?\)|\.training\s*=\s*True\b")
_EVALUATES: Final = re.compile(r"\.eval\(\s*\)|\.train\(\s*(?:mode\s*=\s*)?False\s*\)")
_HOOK: Final = re.compile(r"^on_(?:validation|eval|evaluation|test)\w*_(?:start|begin)$")
_DEFINITION: Final = re.compile(r"\s*(?:async )?def\b|\s*class\b")
_OF_A_PART: Final = re.compile(r"\bisinstance\(|Norm")


def line(process: Process, evaluates: Location | None) -> Location | None:
    """The only such line between the model's eval() and the line at which it is called; else the only one of the script
    in a function that looks for layers of a kind, and neither evaluates nor trains."""
    if evaluates is None:
        return None
    lines = [one for one in process.locations("train-mode") if _TRAINS.search(one.source)]
    home = evaluates.file_function
    into_eval = [one for one in process.locations("eval-mode") if _EVALUATES.search(one.source)]
    begins = [one.line for one in into_eval if one.file_function == home and one.line < evaluates.line]
    if begins:
        inside = [one for one in lines if one.file_function == home]
        inside = [one for one in inside if max(begins) <= one.line < evaluates.line]
        if inside:
            return inside[0] if len(inside) == 1 else None
    apart = {one.file_function for one in into_eval} | process.functions("backward", "loop")
    apart |= {home, *((one.file, script_lines.MODULE) for one in lines)}
    helpers = [one for one in lines if one.file_function not in apart]
    return helpers[0] if len(helpers) == 1 and _looks_for_layers(process, helpers[0]) else None


def above(process: Process, evaluates: Location | None) -> Location | None:
    """The nearest line above the one that calls a model, within its function, that puts it into train mode; None where
    one that puts it into eval mode stands between, or where the function trains as well."""
    text = recorded_text.around(process, evaluates) if evaluates is not None else {}
    number = evaluates.line - 1 if evaluates is not None else 0
    while evaluates is not None and number in text and not _DEFINITION.match(text[number]):
        said = code_of(text[number])
        if _EVALUATES.search(said):
            return None
        if _TRAINS.search(said):
            named = [one for one in process.locations("train-mode") if one.file_line == (evaluates.file, number)]
            if recorded_text.indent_of(text[number]) > recorded_text.indent_of(text.get(evaluates.line, "")):
                return None  # in a branch that need not have run
            trains = process.functions("backward")
            return next((one for one in named if one.file_function not in trains), None)
        number -= 1
    return None


def in_hook(process: Process) -> Location | None:
    """The only line that puts a model into train mode in a method which a framework calls as a validation begins."""
    lines = [one for one in process.locations("train-mode") if _TRAINS.search(one.source)]
    lines = [one for one in lines if _HOOK.search(one.function.rpartition(".")[2])]
    return script_lines.only_of(lines)


def by_call(process: Process, evaluates: Location | None) -> tuple[Location, int] | None:
    """The only line of another function that puts a model into train mode, and the line by which the validation calls
    that function, between its own eval() and the line that calls the model."""
    if evaluates is None:
        return None
    home = evaluates.file_function
    into_eval = [one for one in process.locations("eval-mode") if _EVALUATES.search(one.source)]
    begins = [one.line for one in into_eval if one.file_function == home and one.line < evaluates.line]
    between = range(max(begins, default=evaluates.line) + 1, evaluates.line)
    text = {at: one for at, one in recorded_text.of_function(process, evaluates).items() if at in between}
    found = [
        (one, at)
        for one in process.locations("train-mode")
        if _TRAINS.search(one.source) and one.file_function != home
        for at, said in text.items()
        if re.search(rf"\b{re.escape(one.function)}\(", code_of(said))
    ]
    return found[0] if len(found) == 1 else None


def left_evaluating(process: Process, place: Location | None) -> Diff | None:
    """The statement with eval() in place of train(), or False in place of True."""
    own = own_statement.at(process, place)
    if own is None:
        return None
    calls = own.parsed.calls("train")
    said = own.parsed.statement
    if len(calls) == 1 and isinstance(calls[0].func, ast.Attribute):
        receiver = own.parsed.operand(calls[0].func.value)
        return own.changed(own.parsed.with_parts({calls[0]: f"{receiver}.eval()"}))
    if isinstance(said, ast.Assign) and isinstance(said.value, ast.Constant) and said.value.value is True:
        return own.changed(own.parsed.with_parts({said.value: "False"}))
    return None


def _looks_for_layers(process: Process, place: Location) -> bool:
    """Whether the function says, up to this line, which layers it is about."""
    text = recorded_text.of_function(process, place)
    return any(_OF_A_PART.search(said) for number, said in text.items() if number <= place.line)
