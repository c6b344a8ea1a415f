"""Averages of weights: the lines that make and update one, the decay that is written there, and what to do."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.rules.evaluation.ema_not_updated import copies
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Location

SELDOM: Final = 3  # updates written down over those measured; derived: an average may be updated every other step
PART: Final = 10  # of a run; derived: an average of a tenth of it has left nearly all of the start behind
NOT_CHANGED: Final = "The copy of the model that is evaluated has"
HARM: Final = "the evaluated model, perhaps also the saved one, is not the trained one."
SLOW: Final = ", or so slowly that it is"


class Advice(NamedTuple):
    """The line to change, what is said of it, and what to do there."""

    place: Location
    said: str
    fix: str
    code: str


def advice(process: Process, per_step: float, steps: int) -> Advice | None:
    """Of an average that goes towards the model by a part `per_step` of what lies between them in a step: too seldom
    updated, by the decay that its line is written with, or written with one that is too slow for a run of so many
    steps. None where no single line makes it with one number between 0 and 1."""
    made = script_lines.only(process, "average-made")
    own = own_statement.at(process, made)
    found = _weight(own) if own is not None else None
    if made is None or own is None or found is None or per_step <= 0:
        return None
    number, weight = found
    if weight < SELDOM * per_step:
        part = max(1, steps // PART)
        new = f"{1 - 1 / part:.3g}" if number.value != weight else f"{1 / part:.3g}"
        code = f"{own.dedented(own.parsed.with_parts({number: new}))}  # averages over {part} steps, a tenth of the run"
        fix = f"{copies.LOWER}: it averages over about 1 / (1 - decay) steps."
        if number.value == weight:
            fix = f"Give the model a larger weight than {weight:g} in each update: about 1 / weight steps are averaged."
        return Advice(made, "", fix, code) if part > 1 else None
    every, updated = round(weight / per_step), script_lines.only(process, "average-update")
    place = updated or copies.mixing(process) or made
    said = f" Line {made.line} gives each update a weight of {weight:.3g}, so it ran about once in {every} steps."
    fix = f"Line {place.line} updates the average too seldom: call it after every optimizer step, in the loop."
    if place is made:
        fix = "Update the average after every optimizer step, in the loop."
    step = process.longest.step_location
    code = f"{step.source}\n{updated.source}" if step is not None and updated is not None else ""
    return Advice(place, said, fix, code or copies.example(None))


def place(process: Process, moves: bool) -> Location | None:
    """The line that mixes the weights of the model into the average; else the one that makes it, of one that moves, or
    that updates it."""
    known = script_lines.only(process, "average-made") if moves else script_lines.only(process, "average-update")
    return copies.mixing(process) or known


def words(standing: copies.Standing, advice: Advice | None) -> tuple[str, str]:
    """The title of a finding about weights that stand still, and what was seen of them."""
    ran, way = plural(int(standing.steps[-1]) - int(standing.steps[0]), "step"), percent(standing.moved)
    whose, what = ("these", "weights") if standing.put_in else ("its weights", "copy")
    if not standing.moved:
        title = "The weights put into the model to evaluate it have" if standing.put_in else NOT_CHANGED
        return (
            f"{title} not changed in {ran}",
            f"{whose} have not moved since the first one, while the model's have. It is still",
        )
    seen = f"{whose} have moved only {way} as far as the model's since the first one"
    slow = f". {standing.pace}{advice.said if advice else ''} That is too slow for this run. It is about"
    return f"The averaged {what} moved {way} as far as the model in {ran}", seen + (slow if standing.pace else SLOW)


def _weight(own: OwnStatement) -> tuple[ast.Constant, float] | None:
    """The only number between 0 and 1 of a statement, and the weight of the model in an update by it: it is the decay
    or its complement, whichever is smaller."""
    numbers = [one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.Constant)]
    between = [one for one in numbers if isinstance(one.value, float) and 0 < one.value < 1]
    if len(between) != 1 or not isinstance(between[0].value, float):
        return None
    return between[0], min(between[0].value, 1 - between[0].value)
