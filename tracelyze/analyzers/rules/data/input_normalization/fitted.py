"""A scaler that a line fits, while no line has it transform anything: the model is given what it was fitted to."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_SCALERS: Final = re.compile(
    r"(?P<held>(?:[A-Za-z_]\w*\.)*\w*scaler)\.fit\(|(?P<made>(?:[A-Za-z_]\w*\.)*\w+)\s*=\s*(?:\w+\.)*\w*Scaler\([^()]*\)\.fit\("
)
OF_TARGETS: Final = re.compile(r"(?:^|[._])(?:y|target|label|output)", re.IGNORECASE)
_TENSORS: Final = ("tensor", "as_tensor", "from_numpy", "FloatTensor", "Tensor")
_CODE: Final = "{name} = {scaler}.transform({name})  # above line {line}, of training and validation"


def remedy(process: Process) -> Remedy | None:
    """The line that makes the dataset of values as they were; None where another line may scale them."""
    fits = [one for one in process.locations("fit") if _SCALERS.search(one.source)]
    place = script_lines.only(process, "data")
    if len(fits) != 1 or place is None or process.locations("transforms") or fits[0].file != place.file:
        return None
    found = _SCALERS.search(fits[0].source)
    scaler = (found["held"] or found["made"]) if found is not None else ""
    if not scaler or OF_TARGETS.search(scaler):
        return None
    fix = (
        f"Scale what line {place.line} makes the dataset of, in training and validation alike: line {fits[0].line} "
        f"fits {scaler}, but no line of {place.file} calls its transform()."
    )
    return Remedy(fix, _CODE.format(name=_given(process, place), scaler=scaler, line=place.line), place)


def _given(process: Process, place: Location) -> str:
    """The name of what the first tensor of a dataset is made of; `x` where that is not known."""
    own = own_statement.at(process, place)
    calls = [one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.Call)] if own is not None else []
    made = [one.args[0] for one in calls if name_of(one.func) in _TENSORS and one.args]
    names = [one.id for one in made if isinstance(one, ast.Name)]
    return names[0] if names and len(names) == len(made) else "x"
