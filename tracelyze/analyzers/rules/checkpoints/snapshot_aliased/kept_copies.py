"""The line that keeps a model's weights without copying them: why what it does is no copy, and the line with one."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine
    from tracelyze.diagnosis import Diff

_COPIES: Final = re.compile(r"\b(?:clone|deepcopy|copy_|tensor|array|tolist|save|load_state_dict)\s*\(")
_HANDS_OUT: Final = ("state_dict", "get_state_dict", "get_model_state_dict", "get_peft_model_state_dict")
_HANDS_OUT_OF_STRATEGIES: Final = ("lightning_module_state_dict", "get_module_state_dict")
_KEEPS: Final = (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)
_MOVES: Final = ("detach", "cpu", "to")  # methods that give the same memory, or may
_NO_COPY: Final = {
    r"(\.detach\(|\.data\b)": "{} shares the memory of the tensor",
    r"(\.cpu\(|\.to\()": "{} does not copy a tensor that is there already",
    r"(\bcopy\.copy\(|\.copy\(|\bdict\(|\bOrderedDict\()": "{} copies the dictionary, not its tensors",
}


def why(process: Process, taken: Location | None) -> str:
    """A sentence about what the line does with the weights, where that looks like a copy."""
    at = _made_at(process, taken)
    found = [(re.search(pattern, at.source), words) for pattern, words in _NO_COPY.items()] if at is not None else []
    said = [words.format(one[1].replace("(", "()")) for one, words in found if one is not None]
    return f" Line {at.line} makes no copy: {' and '.join(said)}." if at is not None and said else ""


def _made_at(process: Process, taken: Location | None) -> Location | None:
    """Where a dictionary over several lines gives each tensor its value; any other line as it stands."""
    own = own_statement.at(process, taken)
    states = _handed_out(own) if own is not None and "\n" in own.text else None
    if own is None or states is None or taken is None:
        return taken
    for node in ast.walk(own.parsed.tree):
        if isinstance(node, ast.DictComp) and any(one is states for one in ast.walk(node.generators[0].iter)):
            value = own.parsed.text_of(node.value)
            return taken.at(own.line + node.value.lineno - 1, value)
    return taken


def edit(process: Process, taken: Location | None) -> Diff | None:
    """The statement with a copy of each tensor, where it hands out the weights at one place and copies none."""
    own = own_statement.at(process, taken)
    changed = _changed(own) if own is not None and own.is_whole and not _COPIES.search(own.text) else None
    return own.changed(changed) if own is not None else None


def _changed(own: OwnStatement) -> str | None:
    line, states = own.parsed, _handed_out(own)
    if states is None or not isinstance(own.parsed.statement, _KEEPS):
        return None
    for node in ast.walk(line.tree):
        if isinstance(node, ast.DictComp) and any(one is states for one in ast.walk(node.generators[0].iter)):
            return _each_copied(line, node)
        if isinstance(node, ast.Attribute) and node.value is states and node.attr != "copy":
            return None  # a part of the weights, or another use of them
        if isinstance(node, ast.Subscript) and node.value is states:
            return None
    own_method = isinstance(states.func, ast.Attribute) and not states.args and not states.keywords
    if name_of(states.func) == "state_dict" and not own_method:
        return None
    copied = f"{{name: tensor.detach().clone() for name, tensor in {line.text_of(states)}.items()}}"
    return line.with_parts({states: copied})


def _handed_out(own: OwnStatement) -> ast.Call | None:
    """The statement's only call that hands out weights: of the model, or of a framework that holds it."""
    return own.only_call(*_HANDS_OUT, *_HANDS_OUT_OF_STRATEGIES)


def _each_copied(line: ParsedLine, made: ast.DictComp) -> str | None:
    """A dictionary of all tensors with a copy of each, where the values are the tensors, moved or detached."""
    target = made.generators[0].target
    variable = target.elts[1] if isinstance(target, ast.Tuple) and len(target.elts) == 2 else None
    value: ast.expr = made.value
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and name_of(value.func) in _MOVES:
        value = value.func.value
    value = value.value if isinstance(value, ast.Attribute) and value.attr == "data" else value
    if not isinstance(value, ast.Name) or not isinstance(variable, ast.Name) or value.id != variable.id:
        return None
    return line.with_parts({made.value: f"{line.text_of(made.value)}.clone()"})
