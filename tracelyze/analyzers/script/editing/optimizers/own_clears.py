"""The clearing of an optimizer beside that of another one, or in place of one that stands there twice: a line that was
copied, and its name not changed; and the clearing of several, none of which is cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracelyze.analyzers.script import edits, recorded_text
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


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


class OfAll(NamedTuple):
    """What clears all of several optimizers. `place`: the last of their steps, where one edit behind it does."""

    fix: str
    code: str
    place: Location | None
    edit: Diff | None


def of_all(process: Process) -> OfAll | None:
    """The clearing of each of several optimizers: behind the last of their steps where these follow all backwards, else
    before each one's own backward, as another's would fill its gradients again. None where a line of the script clears
    one of them, or where the lines of their steps are not known."""
    steps = sorted((one.step_location for one in process.optimizations if one.step_location), key=lambda one: one.line)
    matches = [edits.STEP.fullmatch(one.source) or edits.SCALER_STEP.fullmatch(one.source) for one in steps]
    names = list(dict.fromkeys(match["optimizer"] for match in matches if match))
    if len(names) < 2 or len(names) != len(process.optimizations):
        return None
    cleared = process.locations("clear-text") + process.locations("zero_grad")
    if any(f"{name}.zero_grad(" in one.source for name in names for one in cleared):
        return None
    calls, each = [f"{name}.zero_grad()" for name in names], "both" if len(names) == 2 else "all"
    if not _follow_all_backwards(process, steps):
        fix = "Clear the gradients of each optimizer once per step, before the first backward pass of its own loss."
        return OfAll(
            fix, "\n".join(f"{call}  # before the first backward of its own loss" for call in calls), None, None
        )
    there = recorded_text.line_at(process, steps[-1])
    edit = Diff(steps[-1].file, steps[-1].line + 1, [], [f"{there[0]}{call}" for call in calls]) if there else None
    fix = f"Clear the gradients of {each} optimizers once per step, right behind the last of their steps."
    return OfAll(fix, "\n".join(calls), steps[-1], edit)


def _follow_all_backwards(process: Process, steps: list[Location]) -> bool:
    """Whether these steps stand in one block of the function that makes all backwards, behind those."""
    backwards, first, last = process.locations("backward"), steps[0], steps[-1]
    if not backwards or len({one.file_function for one in (*backwards, *steps)}) > 1:
        return False
    text = recorded_text.around(process, first)
    between = [text.get(at) for at in range(first.line, last.line + 1)]
    depths = [recorded_text.indent_of(line) for line in between if line is not None and line.strip()]
    whole = None not in between and depths[0] == depths[-1] == min(depths)
    return whole and max(one.line for one in backwards) < first.line


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
