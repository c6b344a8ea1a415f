"""What is saved in place of the trained weights: a copy of them that the script took before, and the line that did."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_saves, own_statement
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

_COPIES: Final = re.compile(r"\b(?:deepcopy|clone)\(.*\bstate_dict\(|\bstate_dict\(.*\bclone\(", re.DOTALL)
_ANY: Final = (
    "The script saves a different object: an early copy, a model that was rebuilt, or one that the optimizer does not "
    "hold."
)


class Early(NamedTuple):
    """A sentence about what is saved, and the line to change."""

    said: str
    place: Location | None


def of(process: Process, save: Location | None, keys: str | None) -> Early:
    """The copy that is saved at a place, by the only line of the script that asks a module for its weights."""
    lines = list({one.file_line: one for one in process.locations("state_dict")}.values())
    own = own_statement.at(process, lines[0]) if len(lines) == 1 else None
    names = _targets(own) if own is not None else []
    if own is None or save is None or not names or not _is_before_training(process, lines[0], save):
        return Early(_ANY, save)
    said = (
        f"The script saves `{names[0]}`, an early copy: line {lines[0].line} makes it, and no other line was seen to "
        "ask a module for its weights."
    )
    if own_saves.made_at(process, save) == (own.file, own.line):
        return Early(said, save)
    saved = own_saves.weights(process, save, keys)
    if saved is None or saved[0].parsed.text_of(saved[1]) not in names:
        return Early(_ANY, save)
    at = saved[0].line + saved[1].lineno - 1
    text = recorded_text.of_file(process, save.file).get(at, "").strip()
    return Early(said, save.at(at, text) if text else save)


def _targets(own: OwnStatement) -> list[str]:
    """What a statement assigns a copy of the weights to; empty where it does not."""
    made = own.parsed.statement
    if not isinstance(made, ast.Assign):
        return []
    pairs = [(target, made.value) for target in made.targets]
    for target in made.targets:
        if isinstance(target, ast.Tuple) and isinstance(made.value, ast.Tuple):
            pairs = list(zip(target.elts, made.value.elts, strict=False))
    copies = [target for target, value in pairs if _COPIES.search(own.parsed.text_of(value))]
    return [own.parsed.text_of(one) for one in copies if isinstance(one, ast.Name | ast.Attribute)]


def _is_before_training(process: Process, taken: Location, save: Location) -> bool:
    """Whether a line cannot have run again before each save: an object that is made runs it once, and in a function
    that saves below its loop, or within it, the loop lies between. Else it may copy a model that never trains."""
    if taken.function == "__init__":
        return True
    loops = [one for role in ("epochs", "loop", "backward", "step") for one in process.locations(role)]
    beside = [one.line for one in loops if one.file_function == taken.file_function]
    if taken.function != script_lines.MODULE and taken.file_function != save.file_function:
        return False
    return any(taken.line < at and (at < save.line or save.function != taken.function) for at in beside)
