"""The line that draws the timesteps of a denoising model, among all that draw integers: labels, places, crops.

A line counts if what it draws has the name of timesteps and may go into the model: in the function that calls the model
with it, in a forward, or in the function that holds the backward. And if it draws from as many numbers as occurred,
where it says how many.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence.editing import parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_TIMESTEPS: Final = re.compile(
    r"(?:diffusion_|noise_)?(?:t|ts|times?|time_?steps?|steps?|noise_levels?)", re.IGNORECASE
)
REACHED = 0.9  # of the numbers drawn from: 200 evenly drawn values leave out the last tenth once in 10^9


def line(process: Process, highest: float) -> Location | None:
    """The line; None where several may be it, or none is known to be. `highest`: the highest timestep that occurred."""
    drawn = {one: name for one in process.locations("draw") if (name := _drawn_into(one, highest))}
    calls = process.locations("training-call")
    given = {(one.file, one.function, name) for one in calls for name in _given_by_name(one)}
    into_the_model = [one for one, name in drawn.items() if (one.file, one.function, name) in given]
    if into_the_model:
        return into_the_model[0] if len(into_the_model) == 1 else None
    trains = {(one.file, one.function) for one in process.locations("backward")}
    near = [one for one in drawn if one.function == "forward" or (one.file, one.function) in trains]
    return near[0] if len(near) == 1 else None


def _drawn_into(place: Location, highest: float) -> str | None:
    """The variable that holds what the line draws with its only randint, if that can be the timesteps."""
    parsed = parsed_line.parse(place.source)
    calls = parsed.calls("randint", "randint_like") if parsed else []
    assigned = parsed.statement if parsed else None
    if len(calls) != 1 or not isinstance(assigned, ast.Assign) or not isinstance(assigned.targets[0], ast.Name):
        return None
    numbers = [one.value for one in calls[0].args if isinstance(one, ast.Constant) and type(one.value) is int]
    fits = not numbers or highest < max(numbers) <= (highest + 1) / REACHED or max(numbers) == 0
    name = assigned.targets[0].id
    return name if fits and len(assigned.targets) == 1 and _TIMESTEPS.fullmatch(name) else None


def _given_by_name(place: Location) -> set[str]:
    """Names that are arguments of a call in the line, as they are."""
    parsed = parsed_line.parse(place.source)
    if parsed is None:
        return set()
    calls = [node for node in ast.walk(parsed.tree) if isinstance(node, ast.Call)]
    given = [one for call in calls for one in (*call.args, *(keyword.value for keyword in call.keywords))]
    return {one.id for one in given if isinstance(one, ast.Name)}
