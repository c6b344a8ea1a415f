"""Two lines that draw the same split, each anew and without a seed, of which one takes the training part and the other
one the validation part: `train = table.train_test_split(0.2)["train"]`, and `val = ...["test"]` below it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.diagnosis import Diff

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_SEEDS: Final = (None, "seed", "random_state", "generator", "shuffle")  # None: `**options`, which may hold one
_NAME: Final = "parts"  # of the split, where its parts are taken by their keys


class SplitTwice(NamedTuple):
    """What to change, in words, as an example, and as the edit of both lines where one follows on the other."""

    fix: str
    code: str
    edit: Diff | None


class _Part(NamedTuple):
    """A line that splits and takes one part. `call`: the text of the split; `key`: what it takes; `name`: of the part;
    `by_key`: whether it takes the part by its key, and not as one of two names."""

    call: str
    key: str
    name: str
    by_key: bool


def at(process: Process, split: Location | None) -> SplitTwice | None:
    """Where another line beside the one that splits draws the same split again, and takes the other part of it."""
    text = recorded_text.around(process, split) if split is not None else {}
    own = _part(text.get(split.line, "")) if split is not None else None
    if split is None or own is None:
        return None
    parts = {number: part for number, line in text.items() if (part := _part(line)) and part.call == own.call}
    depths = {recorded_text.indent_of(text[number]) for number in parts}
    keys = {part.key for part in parts.values()}
    if len(parts) != 2 or len(keys) != 2 or len(depths) != 1 or len({part.by_key for part in parts.values()}) != 1:
        return None
    first, last = sorted(parts)
    between = range(first, last)
    if any(one.line in between and one.file == split.file for role in ("seed", "reseed")
           for one in process.locations(role)):  # fmt: skip
        return None  # what is drawn may be the same each time
    lines = _together([parts[first], parts[last]])
    edit = None
    if last == first + 1 and not any(re.search(rf"\b{_NAME}\b", line) for line in text.values()):
        indent = " " * depths.pop()
        edit = Diff(split.file, first, [text[first], text[last]], [f"{indent}{line}" for line in lines])
    fix = f"Lines {first} and {last} each draw a split of their own: draw it once, and take both parts of that."
    return SplitTwice(fix, "\n".join(lines), edit)


def _together(parts: list[_Part]) -> list[str]:
    """The lines that split once and take both parts."""
    if parts[0].by_key:
        names, taken = ", ".join(one.name for one in parts), ", ".join(f"{_NAME}[{one.key}]" for one in parts)
        return [f"{_NAME} = {parts[0].call}", f"{names} = {taken}"]
    names = ", ".join(one.name for one in sorted(parts, key=lambda one: one.key))
    return [f"{names} = {parts[0].call}"]


def _part(line: str) -> _Part | None:
    """The split and the part that a line takes of it; None of other lines, and where the split is given a seed."""
    parsed = parsed_line.parse(line.strip())
    own = parsed.statement if parsed is not None else None
    if parsed is None or not isinstance(own, ast.Assign) or len(own.targets) != 1:
        return None
    (target,), value = own.targets, own.value
    call = value.value if isinstance(value, ast.Subscript) else value
    if not isinstance(call, ast.Call) or parsed_line.name_of(call.func) not in ("random_split", "train_test_split"):
        return None
    if any(one.arg in _SEEDS for one in call.keywords):
        return None
    if isinstance(value, ast.Subscript):
        plain = isinstance(value.slice, ast.Constant) and isinstance(target, ast.Name)
        return _Part(parsed.text_of(call), parsed.text_of(value.slice), parsed.text_of(target), True) if plain else None
    names = [parsed.text_of(one) for one in target.elts] if isinstance(target, ast.Tuple) else []
    kept = [at for at, name in enumerate(names) if not name.startswith("_")]
    return (
        _Part(parsed.text_of(call), str(kept[0]), names[kept[0]], False) if len(names) == 2 and len(kept) == 1 else None
    )
