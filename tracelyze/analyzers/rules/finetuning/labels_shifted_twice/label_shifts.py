"""Targets that a line of the script shifts by one position: the same line without the shift, and an example."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine

_BEHIND_THE_FIRST: Final = re.compile(r"(?:.*,\s*)?1\s*:", re.DOTALL)  # x[1:], x[:, 1:]
_BEFORE_THE_LAST: Final = re.compile(r"(?:.*,\s*)?:\s*-1", re.DOTALL)  # x[:-1], x[:, :-1]
_CUT_BEHIND: Final = re.compile(r"\[(?:[^\[\]]*,)?\s*:\s*-1\s*\]")
_CALL: Final = re.compile(r"\binput_ids=(?P<ids>\w+), .*\blabels=(?P<labels>\w+)")


_IDS: Final = "input_ids"  # as models of transformers call what they are given
_TENSORS: Final = re.compile(r"\[[^\[\]]*,\s*1\s*:[^\[\]]*\]|\btorch\.|\.(?:view|clone|unsqueeze|long)\(")
"""Of a line that cuts a tensor: labels[:, 1:] of a batch, or what only a tensor can do."""
_ARRAYS: Final = re.compile(r"\bnp\.|\bnumpy\.|\.astype\(")
_IGNORED: Final = re.compile(r"(?<![\w.)\]])-\s?100\b(?!\.)")  # the target that a loss leaves out


def unshifted(process: Process, place: Location | None) -> Diff | None:
    """The statement with the same positions for targets and ids: `x[:-1]` in place of the `x[1:]` beside it."""
    own = own_statement.at(process, place)
    if own is None or place is None:
        return None
    beside = recorded_text.of_function(process, place)
    return own.changed(_same_positions(own.parsed, "\n".join(beside.values())))


def cuts_the_last(edit: Diff | None) -> bool:
    """Whether the edited statement takes all but the last of what the ids and the labels are made of."""
    return edit is not None and _CUT_BEHIND.search("\n".join(edit.added)) is not None


def _same_positions(line: ParsedLine, beside: str) -> str | None:
    """None where the statement does not take all but the first once, and all but the last of the same thing or of what
    it hands over as input_ids; or where the lines beside it do not take all but the last of that thing once."""
    filled = _filled(line)
    if filled:
        return filled
    parts = [node for node in ast.walk(line.tree) if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)]
    windows = [(one, start) for one in parts if (start := _one_later(line, one.slice))]
    if len(windows) == 1:
        return _same_window(line, *windows[0], beside)
    whole = [(one, end) for one in parts if (end := _to_one_later(line, one.slice))]
    if len(whole) == 1:
        return _from_the_first(line, *whole[0], beside)
    shifted = [one for one in parts if _BEHIND_THE_FIRST.fullmatch(line.text_of(one.slice))]
    if len(shifted) != 1:
        return None
    named = _as_ids(line)
    ids = [
        one
        for one in parts
        if (one in named or line.text_of(one.value) == line.text_of(shifted[0].value))
        and _BEFORE_THE_LAST.fullmatch(line.text_of(one.slice))
    ]
    slices = [line.text_of(one.slice) for one in ids]
    if not ids:
        taken = rf"(?<![\w.]){re.escape(line.text_of(shifted[0].value))}\[([^\[\]]*)\]"
        slices = [one for one in re.findall(taken, beside) if _BEFORE_THE_LAST.fullmatch(one)]
    return line.with_parts({shifted[0].slice: slices[0]}) if len(slices) == 1 else None


def _filled(line: ParsedLine) -> str:
    """`labels[:] = ids` in place of `labels[:, :-1] = ids[:, 1:]`, also where the ids are masked by what is cut alike;
    empty where something else is filled, or with what is cut otherwise."""
    said = line.statement
    into = said.targets[0] if isinstance(said, ast.Assign) and len(said.targets) == 1 else None
    if not isinstance(said, ast.Assign) or not isinstance(into, ast.Subscript) or not isinstance(into.value, ast.Name):
        return ""
    taken = [node for node in ast.walk(said.value) if isinstance(node, ast.Subscript)]
    cut = [one for one in taken if _BEHIND_THE_FIRST.fullmatch(line.text_of(one.slice))]
    if not cut or len(cut) < len(taken) or not _BEFORE_THE_LAST.fullmatch(line.text_of(into.slice)):
        return ""
    return line.with_parts({into: f"{into.value.id}[:]", **{one: line.text_of(one.value) for one in cut}})


def _one_later(line: ParsedLine, taken: ast.expr) -> str:
    """`i` of a window that begins one later, `[i + 1 : i + 1 + size]`; empty for other slices."""
    lower = taken.lower if isinstance(taken, ast.Slice) and taken.upper is not None else None
    if not isinstance(lower, ast.BinOp) or not isinstance(lower.op, ast.Add):
        return ""
    is_one = isinstance(lower.right, ast.Constant) and lower.right.value == 1
    return line.text_of(lower.left) if is_one and isinstance(lower.left, ast.Name | ast.Attribute) else ""


def _same_window(line: ParsedLine, shifted: ast.Subscript, start: str, beside: str) -> str | None:
    """The statement with the only window of the same thing that begins where the ids do, `[i : i + size]`."""
    taken = rf"(?<![\w.]){re.escape(line.text_of(shifted.value))}\[([^\[\]]*)\]"
    begins = re.compile(rf"{re.escape(start)}\s*:(?!\s*$)")
    found = {one for one in re.findall(taken, beside) if begins.match(one.strip())}
    return line.with_parts({shifted.slice: found.pop()}) if len(found) == 1 else None


def _to_one_later(line: ParsedLine, taken: ast.expr) -> str:
    """`size` of all up to one later, `[1 : size + 1]`; empty for other slices."""
    upper = taken.upper if isinstance(taken, ast.Slice) else None
    if not isinstance(taken, ast.Slice) or not isinstance(upper, ast.BinOp) or not isinstance(upper.op, ast.Add):
        return ""
    ones = [one for one in (taken.lower, upper.right) if isinstance(one, ast.Constant) and one.value == 1]
    return line.text_of(upper.left) if len(ones) == 2 and isinstance(upper.left, ast.Name | ast.Attribute) else ""


def _from_the_first(line: ParsedLine, shifted: ast.Subscript, end: str, beside: str) -> str | None:
    """The statement with the beginning of the same thing that a line beside it takes, `[:size]`."""
    taken = rf"(?<![\w.]){re.escape(line.text_of(shifted.value))}\[(\s*0?\s*:\s*{re.escape(end)}\s*)\]"
    found = set(re.findall(taken, beside))
    return line.with_parts({shifted.slice: found.pop()}) if len(found) == 1 else None


def _as_ids(line: ParsedLine) -> list[ast.expr | None]:
    """What the statement hands over as input_ids: by the key of a dictionary or the name of an argument."""
    found: list[ast.expr | None] = []
    for node in ast.walk(line.tree):
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            found += [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == _IDS]
        if isinstance(node, ast.keyword) and node.arg == _IDS:
            found.append(node.value)
    return found


def _named(change: Location) -> tuple[str, str]:
    """What the line assigns, and what it takes all but the first of; else as models of transformers call them."""
    line = parsed_line.of(change)
    said = line.statement if line is not None else None
    if line is None or not isinstance(said, ast.Assign) or not isinstance(said.targets[0], ast.Name):
        return "labels", _IDS
    parts = [node for node in ast.walk(said.value) if isinstance(node, ast.Subscript)]
    taken = {line.text_of(one.value) for one in parts if _BEHIND_THE_FIRST.fullmatch(line.text_of(one.slice))}
    return (said.targets[0].id, taken.pop()) if len(taken) == 1 else ("labels", _IDS)


def ignores(process: Process) -> bool:
    """Whether the script is seen to set labels to -100."""
    return any(_IGNORED.search(text) for text in recorded_text.everything(process))


def _copy(process: Process, change: Location, ids: str) -> str:
    """A copy of the ids, as a tensor, an array or a list makes one; what they are is told by the line that cuts them,
    or by one of its function that makes what it cuts."""
    line = parsed_line.of(change)
    cut = [node.value for node in ast.walk(line.tree) if isinstance(node, ast.Subscript)] if line is not None else []
    names = "|".join(re.escape(line.text_of(one)) for one in cut) if line is not None else ""
    makes = re.compile(rf"(?<![\w.])(?:{names})\s*=(?!=)") if names else None
    own = recorded_text.of_function(process, change).values() if makes else ()
    said = [change.source, *(text for text in own if makes and makes.search(text))]
    if any(_TENSORS.search(text) for text in said):
        return f"{ids}.clone()"
    return f"{ids}.copy()" if any(_ARRAYS.search(text) for text in said) else f"list({ids})"


def example(process: Process, call: Location | None, change: Location | None) -> str:
    """The labels as a copy of what the model is given, by the names of the line that calls it."""
    then = "; then -100 where it stands today" if ignores(process) else ""
    if call is not None and change is not None and call.file_function != change.file_function:
        name, ids = _named(change)
        return f"{name} = {_copy(process, change, ids)}  # in place of the shift in line {change.line}{then}"
    given = _CALL.search(call.source) if call is not None else None
    ids, labels = (given["ids"], given["labels"]) if given else ('batch["input_ids"]', 'batch["labels"]')
    return f"# right above the call of the model: no shift{then}\n{labels} = {ids}.clone()"
