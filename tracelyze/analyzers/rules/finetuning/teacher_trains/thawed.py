"""A teacher that stood still at first: since when it trains, and the line that turned its gradients on."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.script import script_lines
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_TURNS_ON: Final = r"\.requires_grad_\(\s*(?:(?:requires_grad\s*=\s*)?True)?\s*\)|\.requires_grad\s*=\s*True\b"
_HOLDER: Final = re.compile(r"^([A-Za-z_]\w*)\.requires_grad_\(")


class Thawed(NamedTuple):
    """What was seen before a teacher trained; the only line of the script that turns gradients on, what to do there,
    and an example. Without such a line `place` is None."""

    said: str
    place: Location | None
    fix: str
    code: str


def first_step(process: Process, taught: list[Row]) -> int:
    """The first step of the optimizers that train these targets. Up to there nobody knew what they would train, and
    the same line may have computed the loss of another training, such as that of the teacher alone."""
    optimizers = process.steps["optimizer"]
    theirs = {float(optimizers[int(row["step"])]) for row in taught if row["step"] < len(optimizers)}
    return int(np.argmax(np.isin(optimizers, list(theirs)))) if theirs else 0


def at_the_call(lines: Sequence[Line], line: Line, first: Row, begins: int) -> Line:
    """A difference in a graph that trains a teacher, at the call that it lies within: the only loss between what has
    the same shapes, in which nothing of the teacher trained as long as that was looked at. `begins`: the first step of
    the optimizer, up to which nobody knew what it would train."""
    shapes = (first["input_shape"], first["target_shape"])
    within = [
        one
        for one in lines
        if one.function != line.function
        and all((row["input_shape"], row["target_shape"]) == shapes and not row["target_trained"] for row in one.rows)
        and one.rows[-1]["step"] <= first["step"]
    ]
    if len(within) != 1:
        return line
    return replace(within[0], rows=[*(row for row in within[0].rows if row["step"] > begins), *line.rows])


def of(process: Process, line: Line, rows: list[Row], teacher: str) -> Thawed | None:
    """What was seen of a teacher that trains since one of these rows and did not before; None where it always did.
    `teacher`: what the method that computes the loss calls it."""
    still = [row for row in line.rows if row["step"] < rows[0]["step"]]
    if not still:
        return None
    said = f" Up to step {still[-1]['step']:,} nothing of it was trained, in {plural(len(still), 'look')}."
    place = script_lines.only(process, "freeze", _TURNS_ON)
    if place is None:
        return Thawed(said, None, "", "")
    holder = _HOLDER.match(place.source)
    if holder is not None and holder.group(1) != "self" and teacher.startswith("self."):
        teacher = teacher.replace("self", holder.group(1), 1)
    return Thawed(
        f"{said} Line {place.line} is the only one that turns gradients on: {place.source}.",
        place,
        "Turn on the gradients of the student alone, or turn those of the teacher off again right behind that line: "
        "an optimizer skips tensors without a gradient.",
        f"{teacher}.requires_grad_(False)  # right behind line {place.line}, which turns gradients on",
    )
