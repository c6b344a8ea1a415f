"""A copy of the model, in the words of the script's own line that makes what should have been one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence.editing import own_names, parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_NAMES: Final = (ast.Name, ast.Attribute)


def of_model(process: Process, place: Location | None) -> str:
    """A copy of the model, by the names that the script's own line has for both."""
    line = parsed_line.parse(place.source) if place else None
    made = line.statement if line is not None else None
    reference, model = "reference", "model"
    if isinstance(made, ast.Assign) and len(made.targets) == 1 and isinstance(made.targets[0], _NAMES):
        known = {one.removeprefix("self.") for one in own_names.trained(process)}
        given = [made.value] if isinstance(made.value, _NAMES) else ast.walk(made.value)
        named = {ast.unparse(one) for one in given if isinstance(one, _NAMES)}
        own = named if isinstance(made.value, _NAMES) else {one for one in named if one.removeprefix("self.") in known}
        reference, model = ast.unparse(made.targets[0]), own.pop() if len(own) == 1 else model
    copied = f"{reference} = copy.deepcopy({model}).eval().requires_grad_(False)  # before training"
    return f"import copy  # at the top of the file\n\n{copied}"
