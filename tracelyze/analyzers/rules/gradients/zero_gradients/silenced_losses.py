"""The line that has a loss without a graph take a gradient itself, so that its backward raises no error."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_TURNS_ON: Final = re.compile(
    r"^(?:(?P<held>\w*loss\w*)\s*=(?!=)\s*|return\s+)?(?P<loss>\w*loss\w*)"
    r"\.(?:requires_grad_\((?:(?:requires_grad\s*=\s*)?True)?\)|requires_grad\s*=\s*True)$",
    re.IGNORECASE,
)
_FIX: Final = (
    "Take requires_grad out of line {line}: backward() then fails for as long as the loss has no graph. Above it, look "
    "for what has no gradient: a comparison, argmax, round, item(), numpy, detach() or no_grad(). Compute the loss "
    "without that, as of probabilities in place of a thresholded answer."
)
_OF_THE_ANSWER: Final = (
    "Compute the loss from {0.answer} of line {0.line} without the comparison, which is for metrics. And take "
    "requires_grad out of line {1}: backward() then fails for as long as the loss has no graph."
)
_WITHOUT: Final = "return {loss}  # in place of line {line}"


class Silenced(NamedTuple):
    """What is said of the line, what to do, an example, and the line itself."""

    said: str
    fix: str
    code: str
    place: Location


def of(process: Process) -> Silenced | None:
    """The only line that turns a gradient on for what is named a loss, where no gradient came of it."""
    lines = [(one, _TURNS_ON.match(code_of(one.source).strip())) for one in process.locations("freeze")]
    place = script_lines.only_of([one for one, found in lines if found is not None])
    found = next((found for one, found in lines if found is not None and one == place), None)
    if place is None or found is None:
        return None
    said = (
        f"Line {place.line} has `{found['loss']}` require a gradient. A loss that was computed from these parameters "
        "with a graph does so by itself; one without a graph stays cut off from them, and the line only keeps "
        "backward() from saying so."
    )
    returns = place.source.startswith("return")
    code = _WITHOUT.format(loss=found["loss"], line=place.line) if returns else ""
    compared = _compared(process)
    if compared is None:
        return Silenced(said, _FIX.format(line=place.line), code, place)
    said += f" Line {compared.line} calls the model and compares its answer: a comparison has no gradient."
    return Silenced(said, _OF_THE_ANSWER.format(compared, place.line), code, place)


class _Compared(NamedTuple):
    """A line, and what it compares, as it is written there."""

    line: int
    answer: str


def _compared(process: Process) -> _Compared | None:
    """The only line that calls the model in training, where it holds the answer against something."""
    own = own_statement.at(process, process.location("training-call"))
    if own is None or len({one.file_line for one in process.locations("training-call")}) != 1:
        return None
    tests = [one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.Compare)]
    called = [one for one in tests if any(isinstance(part, ast.Call) for part in ast.walk(one.left))]
    if len(called) != 1 or not isinstance(own.parsed.statement, ast.Return | ast.Assign):
        return None
    return _Compared(own.line, f"`{own.parsed.text_of(called[0].left)}`")
