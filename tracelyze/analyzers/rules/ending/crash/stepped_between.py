"""Weights that an optimizer's step changed between a forward and the backward of its loss, as in a GAN whose generator
loss was computed before the discriminator's step."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.script import edits, recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.own_statement import OwnStatement
from tracelyze.analyzers.script.names import places_in
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_CHANGED: Final = re.compile(
    r"modified by an inplace operation: \[\w+(?:\.\w+)* \[(?P<shape>[\d, ]+)\]\]"
    r"(?:, which is output 0 of (?P<view>\w+),)?"
)
_OF_WEIGHTS: Final = re.compile(r"^(?:T|Transpose|Permute|AsStrided|View|UnsafeView|Alias)(?:Backward\d*)?$")


@dataclass(frozen=True)
class SteppedBetween:
    """`place`: the step; `model`: what it trains, by its name; `code`: the lines to repeat behind it."""

    place: Location
    model: str
    loss: str
    code: str
    seen = True

    @property
    def said(self) -> str:
        """What came between."""
        return (
            f"Here line {self.place.line} changes the weights of {self.model}, through which {self.loss} was computed "
            "above it: the backward of that loss needs the weights as they were."
        )

    @property
    def fix(self) -> str:
        """What to do about it."""
        return (
            f"Compute {self.loss} again below line {self.place.line}, with the new weights. If the step moved below "
            f"both backwards instead, {self.model} would learn from the gradients of both losses."
        )


def found(process: Process, event: dict[str, Any], where: Location | None) -> SteppedBetween | None:
    """The only step between the lines that computed the loss and its backward, which raised."""
    changed, asked = _CHANGED.search(str(event["text"] or "")), edits.BACKWARD.match(where.source) if where else None
    if where is None or changed is None or asked is None or not _OF_WEIGHTS.match(changed["view"] or "T"):
        return None
    text = recorded_text.of_function(process, where)
    for step in process.locations("step"):
        model = _trained(process, step, changed["shape"])
        lines = _computing(process, where, sorted(text), asked["loss"], model) if model else []
        if lines and step.file_function == where.file_function and lines[-1].line < step.line < where.line:
            code = "\n".join(one.dedented(one.text) for one in lines)
            return SteppedBetween(step, model, asked["loss"], f"{code}  # again, below line {step.line}")
    return None


def _trained(process: Process, step: Location, shape: str) -> str:
    """The only model that the optimizer of this step trains, by its name, if a weight of it has this shape."""
    made = [row for row in process.optimizers.records() if _steps_alike(process, row, step)]
    if len(made) != 1:
        return ""
    index = made[0]["optimizer"]
    size = math.prod(int(one) for one in shape.split(","))
    rows = [row for row in process.tables["parameters"].records() if row["optimizer"] == index]
    models = {row["model"] for row in process.tables["links"].records() if row["optimizer"] == index}
    names = {row["called_as"] for row in process.models.records() if row["model"] in models} - {None, ""}
    fits = any(row["elements"] == size and row["dimensions"] == shape.count(",") + 1 for row in rows)
    return str(names.pop()) if len(names) == 1 and fits else ""


def _steps_alike(process: Process, row: dict[str, Any], step: Location) -> bool:
    at = process.site(row["site"])
    return at is not None and code_of(at.source).strip() == code_of(step.source).strip()


def _computing(process: Process, where: Location, lines: list[int], loss: str, model: str) -> list[OwnStatement]:
    """The assignments above the backward that lead from what this model gives to the loss, in order."""
    made: dict[int, OwnStatement] = {}
    text = recorded_text.around(process, where)
    for at in lines:
        place = where.at(at, text.get(at, ""))
        one = own_statement.at(process, place) if place.source and at < where.line else None
        if one is not None and isinstance(one.parsed.statement, ast.Assign):
            made[one.line] = one
    through: set[str] = set()
    derived: list[OwnStatement] = []
    for one in made.values():
        if _calls(one, model) or places_in(one.parsed.statement.value) & through:  # type: ignore[attr-defined]
            derived.append(one)
            through |= _targets(one)
    needed, leading = {loss}, list[OwnStatement]()
    for one in reversed(derived):
        if _targets(one) & needed:
            leading.insert(0, one)
            needed |= places_in(one.parsed.statement.value)  # type: ignore[attr-defined]
    return leading


def _calls(one: OwnStatement, model: str) -> bool:
    return any(ast.unparse(node.func) == model for node in ast.walk(one.parsed.tree) if isinstance(node, ast.Call))


def _targets(one: OwnStatement) -> set[str]:
    statement = one.parsed.statement
    return set().union(*map(places_in, statement.targets)) if isinstance(statement, ast.Assign) else set()
