"""What else changes where a model is to return scores in place of probabilities: whoever reads them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_INSTEAD: Final = {
    "sigmoid": "take torch.sigmoid of it; a threshold of 0.5 becomes 0",
    "softmax": "take a softmax of it; an argmax stays what it is",
}
_TRAINS: Final = ("training-call", "loss", "backward")
_LOSS: Final = re.compile(r"(?:loss\w*|crit\w*|entropy\w*|nll\w*|bce\w*)\(", re.IGNORECASE)


def named(squashed: Location | None, function: str) -> str:
    """The name of what `function` is given at this line, as an aside; empty where it has none."""
    line = parsed_line.of(squashed)
    calls = line.calls(function) if line is not None else []
    given = calls[0].args[0] if len(calls) == 1 and calls[0].args else None
    return f" (`{given.id}` in line {squashed.line})" if squashed and isinstance(given, ast.Name) else ""


def said(process: Process, made_at: Location | None, function: str, evaluated: bool) -> str:
    """Two sentences for an edit that takes `function` out of the model at this line. `evaluated`: the same loss is
    computed outside of training, too."""
    callers = [at for at in _callers(process, made_at) if not _to_a_loss(process, at)]
    # A validation whose result goes to the same loss is as it has to be.
    lines = sorted({at.line for at in callers}) if len(callers) > 1 or not evaluated else []
    where = f" (line{'s' if len(lines) > 1 else ''} {listed(lines, most=4)} called it outside of training)"
    return (
        f"The model returns scores then. Wherever else its output is shown, compared or drawn from as a probability"
        f"{where if lines else ''}, {_INSTEAD[function]}."
    )


def _to_a_loss(process: Process, caller: Location) -> bool:
    """Whether what this line makes goes to a loss: on the line itself, or by its name further down."""
    line = parsed_line.of(caller)
    said = line.statement if line is not None else None
    target = said.targets[0] if isinstance(said, ast.Assign) else None
    if _LOSS.search(caller.source) or not isinstance(target, ast.Name):
        return bool(_LOSS.search(caller.source))
    given = re.compile(rf"{_LOSS.pattern}[^()]*(?<![\w.]){re.escape(target.id)}\b")
    lines = recorded_text.of_function(process, caller)
    return any(given.search(text) for at, text in lines.items() if at > caller.line)


def _callers(process: Process, made_at: Location | None) -> set[Location]:
    """The lines of the same file that called the model, or the one of several that holds the module, without training
    it. Empty where a pass may hold the calls of several lines, of which its row has only the first."""
    models = {row["model"] for row in process.models.records()}
    rows = process.tables["modules"].records()
    own = {row["model"] for row in rows if row["made_at"] is not None and process.site(row["made_at"]) == made_at}
    models = own or (models if len(models) == 1 else set())
    passes = [row for row in process.evals.records() if row["model"] in models]
    called = [process.site(row["site"]) for row in passes]
    callers = {at for at in called if at is not None and made_at is not None and at.file == made_at.file}
    trains = {one.file_line for role in _TRAINS for one in process.locations(role)}
    forwards = [one for one in process.locations("forward") if made_at is not None and one.file == made_at.file]
    others = {one.line for one in forwards if one.file_line not in trains} - {one.line for one in callers}
    mixed = any(0 < (row["losses"] or 0) < (row["forwards"] or 0) for row in passes)
    return set() if others or mixed else callers
