"""The clearing of an optimizer beside that of another one, or in place of one that stands there twice: a line that was
copied, and its name not changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.evidence import edits, recorded_text
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization


def in_place_of_a_repeat(optimization: Optimization) -> tuple[Location, Diff, str] | None:
    """The line that clears what another line clears already, the edit that clears this optimizer there, and a sentence
    about both. None where the script has a line that clears it, or where other lines tell that both are meant."""
    process, step = optimization.process, optimization.step_location
    stepped = edits.STEP.fullmatch(step.source) or edits.SCALER_STEP.fullmatch(step.source) if step else None
    if step is None or stepped is None:
        return None
    own = f"{stepped['optimizer']}.zero_grad("
    clears = sorted(process.locations("zero_grad"), key=lambda one: one.line)
    here = [one for one in clears if one.file_function == step.file_function]
    pairs = [(one, other) for one in here for other in here if one.line < other.line and one.source == other.source]
    if len(pairs) != 1 or any(own in one.source for one in process.locations("clear-text") + clears):
        return None
    first, second = pairs[0]
    place = second if second.line < step.line or first.line > step.line else first
    twin = first if place is second else second
    there, other = recorded_text.line_at(process, place), recorded_text.line_at(process, twin)
    if not there or not other or there != other or not edits.CLEAR.fullmatch(there[1]):
        return None
    if not _clears_in_time(optimization, place, step) or not _stand_apart(optimization, first, second):
        return None
    arguments = there[1][there[1].index("(") :]
    edit = Diff(place.file, place.line, ["".join(there)], [f"{there[0]}{own[:-1]}{arguments}"])
    return place, edit, f" Line {place.line} clears what line {twin.line} clears already."


def beside_another(optimization: Optimization) -> tuple[Location, Diff] | None:
    """The line that clears another optimizer once for each step of this one, and the edit that clears this one behind
    it. None where a line of the script clears this one, or where the line stands elsewhere than the only backward."""
    process, step = optimization.process, optimization.step_location
    stepped = edits.STEP.fullmatch(step.source) or edits.SCALER_STEP.fullmatch(step.source) if step else None
    backwards, clears = process.locations("backward"), process.locations("zero_grad")
    if step is None or stepped is None or len(backwards) != 1 or not clears:
        return None
    own, (backward,) = f"{stepped['optimizer']}.zero_grad(", backwards
    if any(own in one.source for one in process.locations("clear-text") + clears):
        return None
    place = max(clears, key=lambda one: one.line)
    there, filled = recorded_text.line_at(process, place), recorded_text.line_at(process, backward)
    functions = {one.file_function for one in (*clears, backward, step)}
    if not there or not filled or there[0] != filled[0] or len(functions) > 1 or not edits.CLEAR.fullmatch(there[1]):
        return None
    if backward.line < place.line < step.line or backward.line > step.line:
        return None
    arguments = there[1][there[1].index("(") :]
    return place, Diff(place.file, place.line + 1, [], [f"{there[0]}{own[:-1]}{arguments}"])


def _lines(optimization: Optimization, role: str, below: Location, above: Location) -> list[int]:
    """The lines of a role between two others of one function."""
    places = optimization.process.locations(role)
    within = [one for one in places if one.file_function == below.file_function]
    return [one.line for one in within if below.line < one.line < above.line]


def _clears_in_time(optimization: Optimization, place: Location, step: Location) -> bool:
    """Whether a backward fills the gradients again before the step, or the step has used them."""
    return place.line > step.line or bool(_lines(optimization, "backward", place, step))


def _stand_apart(optimization: Optimization, first: Location, second: Location) -> bool:
    """Whether no backward between both lines leaves gradients that a step below the second is still to use."""
    backwards = _lines(optimization, "backward", first, second)
    return not backwards or max(_lines(optimization, "step", first, second), default=0) > max(backwards)
