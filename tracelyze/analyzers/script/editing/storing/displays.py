"""Appends of a dictionary, a tuple or a list that the call writes out, such as `{"loss": loss, "logits": logits}`.

What it holds may be numbers and sizes as well, which cannot be detached.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.editing import own_statement, parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Diff, Location

_SEVERAL: Final = (ast.Dict, ast.Tuple, ast.List, ast.Set, ast.ListComp, ast.DictComp, ast.GeneratorExp)
_ELSE: Final = "# where no loss is computed through what it holds\n"
_NUMBERS: Final = re.compile(r"loss|epoch|step|iter|index|idx|\blen\(|\blr\b|\bfloat\(|\bint\(", re.IGNORECASE)
_FREED: Final = ("item(", "detach(", "tolist(", "numpy(")
_STEPS: Final = ("training_step", "compute_loss")  # which frameworks call, and which give the loss back
TOLD: Final = (
    " Outputs take memory without a graph, too: keep numbers of them, or empty the list as soon as it has been read, "
    "as at the end of an epoch."
)
_BEHIND: Final = (
    "# behind the last line that reads the list, as at the end of an epoch (or append numbers of the outputs alone):"
)


def detached(process: Process, line: Location | None) -> str:
    """The append with each tensor of the display without its graph; empty of other lines, and where one of its parts
    is made of several itself or detached already."""
    own, given = _given(process, line)
    if own is None or given is None:
        return ""
    text = own.parsed.text_of(given)
    if isinstance(given, ast.Dict | ast.Call):
        free = 'value.detach() if hasattr(value, "detach") else value'
        made = f"{{key: {free} for key, value in {text}.items()}}"
    else:
        free = 'one.detach() if hasattr(one, "detach") else one'
        made = f"[{free} for one in {text}]" if isinstance(given, ast.List) else f"tuple({free} for one in {text})"
    code = own.dedented(own.parsed.with_parts({given: made}))
    return f"{_ELSE}{code}" if _may_be_read_for_a_loss(process, line) else code + _emptied(process, line, own)


def _emptied(process: Process, line: Location | None, own: OwnStatement) -> str:
    """The call that empties the list, behind the append, where that keeps whole outputs; empty elsewhere."""
    append = own.only_call("append")
    kept = append.func.value if append is not None and isinstance(append.func, ast.Attribute) else None
    if not isinstance(kept, ast.Name | ast.Attribute) or not told(process, line):
        return ""
    return f"\n{_BEHIND}\n{own.parsed.text_of(kept)}.clear()"


def _may_be_read_for_a_loss(process: Process, line: Location | None) -> bool:
    """Whether the line is in a function that computes no loss itself, so that another one may do so of what it keeps,
    as of the steps of an episode."""
    computes = process.functions("loss", "backward", "training-call")
    return line is None or (line.function not in _STEPS and line.file_function not in computes)


def edit(process: Process, line: Location | None, holding: set[str], counted: set[str]) -> Diff | None:
    """The append with the names of the display detached that hold a graph (`holding`), and all else as it is; None
    where there is none, or more than names, entries and constants. `counted`: names of numbers."""
    own, given = _given(process, line)
    parts = _parts(given) if given is not None else []
    plain = all(isinstance(one, ast.Name | ast.Constant | ast.Subscript | ast.Attribute) for one in parts)
    names = [one for one in parts if isinstance(one, ast.Name) and one.id in holding]
    if own is None or not names or not plain or any(one.id in counted for one in names):
        return None
    return own.changed(own.parsed.with_parts({one: f"{one.id}.detach()" for one in names}))


def told(process: Process, line: Location | None) -> str:
    """A sentence about what else than a loss is kept in such a display, which takes memory without a graph, too."""
    own, given = _given(process, line)
    parts = _parts(given) if own is not None and given is not None else []
    others = [one for one in parts if not isinstance(one, ast.Constant) and not _NUMBERS.search(ast.unparse(one))]
    return TOLD if others else ""


def _given(process: Process, line: Location | None) -> tuple[OwnStatement | None, ast.expr | None]:
    """The statement, and the display that it appends."""
    own = own_statement.at(process, line)
    append = own.only_call("append") if own is not None and own.is_whole else None
    given = append.args[0] if append is not None and len(append.args) == 1 and not append.keywords else None
    if own is None or given is None or any(word in own.parsed.text_of(given) for word in _FREED):
        return None, None
    parts = _parts(given)
    return (own, given) if parts and not any(isinstance(one, _SEVERAL) for one in parts) else (None, None)


def _parts(given: ast.expr) -> list[ast.expr]:
    if isinstance(given, ast.Dict):
        return given.values
    if isinstance(given, ast.Tuple | ast.List):
        return given.elts
    named = isinstance(given, ast.Call) and parsed_line.name_of(given.func) == "dict" and not given.args
    return [one.value for one in given.keywords] if isinstance(given, ast.Call) and named else []
