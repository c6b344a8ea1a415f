"""A penalty on the critic's slope that the script computes, and leaves out of the critic's loss."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

_PENALTY: Final = re.compile(
    r"^(?P<name>[A-Za-z_]\w*)\s*=\s*(?:\w+\.)*(?P<function>\w*(?:penalty|penali[sz]e|(?<![a-z])gp(?!u))\w*)\("
)
_WRITTEN_OUT: Final = re.compile(r"^(?P<name>(?:[A-Za-z]\w*_)?(?:penalty|gp))\s*=(?!=)(?P<value>.*\(.*)$")
_WEIGHED: Final = re.compile(r"(?<!\*)\*(?!\*)")  # a product, not a square
_BACKWARD: Final = re.compile(r"^(?P<loss>[A-Za-z_]\w*)\.backward\(")
WEIGHT: Final = 10  # of the paper that introduced the penalty (https://arxiv.org/abs/1704.00028), and of its code


def of(optimization: Optimization) -> Remedy | None:
    """The line that makes the critic's loss, where the one line above its backward that computes a penalty gives it a
    name that no line up to the backward uses. None where a line between them was not recorded."""
    process, backward = optimization.process, optimization.backward_location
    of_loss = _BACKWARD.match(backward.source) if backward is not None else None
    if backward is None or of_loss is None:
        return None
    lines = recorded_text.of_function(process, backward)
    texts = {at: code_of(line).strip() for at, line in lines.items() if at < backward.line}
    computed = [
        (at, found) for at, text in texts.items() if (found := _PENALTY.match(text) or _WRITTEN_OUT.match(text))
    ]
    makes = [at for at, text in texts.items() if re.match(rf"{of_loss['loss']}\s*[-+*/]?=(?!=)", text)]
    if len(computed) != 1 or len(makes) != 1:
        return None
    ((at, found),), (made,) = computed, makes
    name, how = found["name"], found.groupdict()
    between = range(at + 1, backward.line)
    if any(one not in texts or re.search(rf"(?<![\w.]){name}\b", texts[one]) for one in between):
        return None
    place = replace(backward, line=made, source=lines[made].strip())
    own = own_statement.at(process, place)
    statement = own.parsed.statement if own is not None else None
    if own is None or not isinstance(statement, ast.Assign) or name == of_loss["loss"]:
        return None
    given = own.parsed.text_of(statement.value)
    loose = isinstance(statement.value, ast.IfExp | ast.Compare | ast.BoolOp | ast.Lambda | ast.Tuple)
    weighed = _weighed(process, how["function"]) if "function" in how else bool(_WEIGHED.search(how["value"]))
    factor = "" if weighed else f"{WEIGHT} * "
    text = own.parsed.with_parts({statement.value: f"{f'({given})' if loose else given} + {factor}{name}"})
    edit = own.changed(text) if made > at and weighed is not None else None
    return Remedy(
        f"Add `{name}` to the critic's loss{'' if weighed else f', times its weight: {WEIGHT} is usual'}.",
        f"{of_loss['loss']} = {of_loss['loss']} + {factor}{name}  # above line {backward.line}",
        place,
        edit,
        f"Line {at} computes `{name}`, and no line up to the backward in line {backward.line} adds it to the loss: it "
        "bounds nothing.",
    )


def _weighed(process: Process, function: str) -> bool | None:
    """Whether what the script's function of this name returns is a product, so that the penalty has its weight; None
    where no line that returns it was recorded."""
    lines = [one for one in recorded_text.matching(process, re.compile(r"^\s*return\b")) if one.function == function]
    return any(_WEIGHED.search(one.source) for one in lines) if lines else None
