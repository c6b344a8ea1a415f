"""The line that draws the timesteps of a denoising model, among all that draw integers: labels, places, crops.

A line counts if what it draws has the name of timesteps and may go into the model: in the function that calls the model
with it, in a forward, in the function that holds the backward, or in one that hands it to the function that calls the
model. And if it draws from as many numbers as occurred, where it says how many.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.analyzers.script.settings import constants

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_TIMESTEPS: Final = re.compile(
    r"(?:diffusion_|noise_)?(?:t|ts|times?|time_?steps?|steps?|noise_levels?)", re.IGNORECASE
)
_SAMPLES: Final = re.compile(r"sampl|infer|ddim|generat|eval", re.IGNORECASE)
REACHED = 0.9  # of the numbers drawn from: 200 evenly drawn values leave out the last tenth once in 10^9


def line(process: Process, highest: float) -> Location | None:
    """The line; None where several may be it, or none is known to be. `highest`: the highest timestep that occurred."""
    drawn = {one: name for one in process.locations("draw") if (name := _drawn_into(one, highest))}
    calls = process.locations("training-call")
    given = {(one.file, one.function, name) for one in calls for name in _given_by_name(one)}
    into_the_model = [one for one, name in drawn.items() if (one.file, one.function, name) in given]
    if into_the_model:
        return into_the_model[0] if len(into_the_model) == 1 else None
    trains = process.functions("backward")
    near = [one for one in drawn if one.function == "forward" or one.file_function in trains]
    if near:
        return near[0] if len(near) == 1 else None
    handed = {taken for one in calls for taken in _taken_from(process, one)}
    back = [one for one, name in drawn.items() if (one.function.rpartition(".")[2], name) in handed]
    back = back or _drawing_alone(process, calls, highest)
    return back[0] if len(back) == 1 else None  # a function of its own draws them, and adds the noise


def _drawing_alone(process: Process, calls: list[Location], highest: float) -> list[Location]:
    """Lines that return what they draw, of functions whose answer goes into the model under a name of timesteps."""
    named = {
        called
        for one in calls
        for called, name in _taken_from(process, one)
        if _TIMESTEPS.fullmatch(name) and name in _given_by_name(one)
    }
    returned = [one for one in process.locations("draw") if _draws(one, highest, ast.Return)]
    return [one for one in returned if one.function.rpartition(".")[2] in named]


def ends_of_its_own(process: Process, place: Location | None) -> bool:
    """Whether what the line draws below is a setting that nothing but it uses, as far as the recorded lines tell: one
    that a sampler goes by as well must stay, and be another one from the line that draws."""
    parsed = parsed_line.of(place)
    calls = parsed.calls("randint", "randint_like") if parsed else []
    given = [*calls[0].args, *(one.value for one in calls[0].keywords if one.arg == "high")] if calls else []
    nodes = [node for one in given for node in ast.walk(one) if isinstance(node, ast.Name | ast.Attribute)]
    names = {parsed_line.name_of(node) for node in nodes}
    if place is None or any(_SAMPLES.search(name) for name in names):
        return place is None
    used = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, names))})\b(?!\s*(?::[^=]+)?=(?!=))") if names else None
    elsewhere = {one.file_line: one.source for one in recorded_text.lines(process) if one.file_line != place.file_line}
    return used is None or not any("range(" in line and used.search(line) for line in elsewhere.values())


def end_for_the_whole(process: Process, place: Location | None, length: int) -> tuple[str, bool]:
    """What the line is to draw below, and whether it may be put there: the only name in the function that a line of the
    script gives the length of the schedule; else the number, which may stand where a number stands."""
    name = _name_of(process, place, length) if place is not None else None
    parsed = parsed_line.of(place)
    calls = parsed.calls("randint", "randint_like") if parsed else []
    given = [*calls[0].args, *(one.value for one in calls[0].keywords)] if calls else []
    number = any(isinstance(one, ast.Constant) and type(one.value) is int and one.value > 0 for one in given)
    return (name, True) if name else (str(length), number)


def _name_of(process: Process, place: Location, length: int) -> str | None:
    """How the function writes the only constant of the script that is this number: `STEPS`, `cfg.train_steps`."""
    rows = [row for row in process.sites.records() if row["role"] == "constant"]
    same = {str(row["name"]) for row in rows if constants.is_number(str(row["value"]), length)}
    other = {str(row["name"]) for row in rows if not constants.is_number(str(row["value"]), length)}
    told = {row["line"] for row in rows if row["file"] == place.file}
    own = recorded_text.of_function(process, place)
    text = {at: code_of(line) for at, line in own.items()}
    written: set[str] = set()
    for name in same:
        if any(at not in told and re.search(rf"(?<!\w){re.escape(name)}\s*=(?!=)", line) for at, line in text.items()):
            return None  # something else by then
        used = re.compile(rf"(?<![\w.\"'])(?:\w+\.)*{re.escape(name)}\b(?!\s*\(|\s*=(?!=)|[\"'.\[])")
        written |= {found[0] for line in text.values() for found in used.finditer(line)}
    if len(written) != 1 or any(constants.is_on_the_command_line(process, one) for one in same) or same & other:
        return None
    return written.pop()


def _taken_from(process: Process, call: Location) -> set[tuple[str, str]]:
    """Functions whose answers are assigned above the call of the model, in its function, each with a name for them."""
    found: set[tuple[str, str]] = set()
    for number, text in recorded_text.around(process, call).items():
        parsed = parsed_line.parse(text.strip()) if number < call.line and "=" in text else None
        assigned = parsed.statement if parsed else None
        if isinstance(assigned, ast.Assign) and isinstance(assigned.value, ast.Call):
            called = parsed_line.name_of(assigned.value.func)
            names = [one.id for one in ast.walk(assigned.targets[0]) if isinstance(one, ast.Name)]
            found |= {(called, name) for name in names if called}
    return found


def evaluated_beyond(process: Process, row: dict[str, Any]) -> dict[str, Any] | None:
    """The batch of an evaluation that holds the highest timestep above those that are trained (a row of the table
    timesteps); None where none does. The field is the only one of whole numbers that keeps to them in training."""
    rows = [one for one in process.tables["batches"].records() if "int" in str(one["dtype"]) and one["max"] is not None]
    fields: dict[str, list[dict[str, Any]]] = {}
    for one in rows:
        if one["trained"]:
            fields.setdefault(one["field"], []).append(one)
    if row["argument"] in fields:
        fields = {row["argument"]: fields[row["argument"]]}
    kept = {
        name
        for name, ones in fields.items()
        if all(row["lowest"] <= one["min"] <= one["max"] <= row["highest"] for one in ones)
    }
    beyond = [one for one in rows if one["trained"] == 0 and one["field"] in kept]
    beyond = [one for one in beyond if row["highest"] < one["max"] < row["range"]]
    return max(beyond, key=lambda one: float(one["max"])) if len(kept) == 1 and beyond else None


def _drawn_into(place: Location, highest: float) -> str | None:
    """The variable that holds what the line draws with its only randint, if that can be the timesteps."""
    assigned = _draws(place, highest, ast.Assign)
    if not isinstance(assigned, ast.Assign) or not isinstance(assigned.targets[0], ast.Name):
        return None
    name = assigned.targets[0].id
    return name if len(assigned.targets) == 1 and _TIMESTEPS.fullmatch(name) else None


def _draws(place: Location, highest: float, kind: type[ast.stmt]) -> ast.stmt | None:
    """The statement of the line, one of this kind, if its only randint can have drawn this number."""
    parsed = parsed_line.parse(place.source)
    calls = parsed.calls("randint", "randint_like") if parsed else []
    if parsed is None or len(calls) != 1 or not isinstance(parsed.statement, kind):
        return None
    numbers = [one.value for one in calls[0].args if isinstance(one, ast.Constant) and type(one.value) is int]
    fits = not numbers or highest < max(numbers) <= (highest + 1) / REACHED or max(numbers) == 0
    return parsed.statement if fits else None


def _given_by_name(place: Location) -> set[str]:
    """Names that are arguments of a call in the line, as they are."""
    parsed = parsed_line.parse(place.source)
    if parsed is None:
        return set()
    calls = [node for node in ast.walk(parsed.tree) if isinstance(node, ast.Call)]
    given = [one for call in calls for one in (*call.args, *(keyword.value for keyword in call.keywords))]
    return {one.id for one in given if isinstance(one, ast.Name)}
