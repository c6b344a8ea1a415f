"""A teacher in eval mode beside a student that trains: what is off belongs to the teacher, and is off on purpose."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.script import called, recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.editing.remade import validating
from tracelyze.analyzers.script.names import names_in
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


_NAMED: Final = re.compile(r"teacher", re.IGNORECASE)
_FIXED: Final = (
    re.compile(  # the networks of deep Q-learning and of random network distillation that are to stand still
        r"(?:\w+\.)*_?(?:(?:random|frozen|fixed)_)?target(?:_?(?:net|network|model|critic))?", re.IGNORECASE
    )
)
_OTHER_SIDE: Final = re.compile(r"source|src|query|user|anchor", re.IGNORECASE)  # of a pair in which both are to learn


def is_named(name: object) -> bool:
    """Whether a model, or a part of one, is a teacher by its name."""
    return name is not None and _NAMED.search(str(name)) is not None


def is_behind(process: Process, row: dict[str, Any], optimization: Optimization | None) -> bool:
    """Whether one of both sides of a loss comes from a model, or a part of one, that is a teacher by its name; or its
    target from one that is to stand still by its name."""
    made_input, made_target = _names_of(process, row, optimization)
    if any(map(is_named, [row.get("target_part"), made_input, made_target])):
        return True
    return _FIXED.fullmatch(made_target or "") is not None and not _OTHER_SIDE.search(made_input or "")


def is_turned(process: Process, row: dict[str, Any], optimization: Optimization | None) -> bool:
    """Whether the teacher, by its name, made the input of the loss, and the student its target."""
    made_input, made_target = _names_of(process, row, optimization)
    return is_named(made_input) and not is_named(made_target)


def _names_of(process: Process, row: dict[str, Any], optimization: Optimization | None) -> list[str | None]:
    return [called.name_in(process, row[side], optimization) for side in ("input_model", "target_model")]


class Called(NamedTuple):
    """The line that computes the output of a teacher, and an example with it under no_grad."""

    place: Location
    code: str


def computed_by(process: Process, loss: Location | None) -> Called | None:
    """The only line above a loss that computes its target by one call of a model, and nothing of its input."""
    own = own_statement.at(process, loss)
    call = next((node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)), None) if own else None
    if loss is None or own is None or call is None:
        return None
    given = {one.arg: one.value for one in call.keywords}
    sides = [*call.args[:2], *(given[name] for name in ("input", "target") if name in given)]
    if len(sides) != 2:
        return None
    lines = recorded_text.of_function(process, loss)
    made_input, made_target = (
        {number for name in names_in(side) if (number := _assigned(lines, own.line, name))} for side in sides
    )
    alone = made_target - made_input
    if len(alone) != 1:
        return None
    place = alone.pop()
    at = loss.at(place, lines[place])
    code = validating.under(process, at)
    return Called(at, code) if code and _is_one_call(at.source) else None


def _assigned(lines: dict[int, str], below: int, name: str) -> int | None:
    """The nearest line above one that assigns a name; None where none of those recorded in one piece does."""
    number = below - 1
    while number in lines:
        parsed = parsed_line.parse(lines[number].strip())
        said = parsed.statement if parsed is not None else None
        targets = said.targets if isinstance(said, ast.Assign) else []
        if any(name in names_in(target) for target in targets):
            return number
        number -= 1
    return None


def _is_one_call(source: str) -> bool:
    """Whether a line assigns what one call of an object gives: `t = self.big(x)`, and no function of torch."""
    parsed = parsed_line.parse(source)
    said = parsed.statement if parsed is not None else None
    value = said.value if isinstance(said, ast.Assign) else None
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name | ast.Attribute):
        return False
    return not parsed_line.name_of(value.func).startswith(("softmax", "log_softmax", "sigmoid", "normalize"))


def evaluates(process: Process) -> bool:
    """Whether losses of the training are given targets that a model, or a part of one, made in eval mode; or whether
    all modules that depend on the mode are those of models that are teachers by their names."""
    sensitive = [row["called_as"] for row in process.models.records() if row["sensitive"]]
    if sensitive and all(is_named(name) for name in sensitive):
        return True
    rows = [row for row in process.tables["loss_calls"].records() if row["training"] and row["step"]]
    targets = [row for row in rows if row.get("target_model") is not None or row.get("target_part")]
    return bool(targets) and not any(row.get("target_in_train") for row in targets)


def only_batch_norm(optimization: Optimization) -> bool:
    """Whether all mode-sensitive modules of the models are normalisations: those are often frozen on purpose."""
    rows = optimization.process.models.records()
    kinds = [kind for row in rows for kind in re.split(r"[,;]\s*", row["sensitive"] or "") if kind]
    return bool(kinds) and all("norm" in kind.lower() for kind in kinds)
