"""A state that calls of the model take and return, `out, h = model(x, h)`: it goes on from step to step."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_PAIRS: Final = ("LSTM", "LSTMCell")  # their state is a tuple of two tensors
_SINGLE: Final = ("GRU", "RNN", "GRUCell", "RNNCell")


def carried(process: Process) -> str:
    """The attribute of the model that was seen to hold the graph of the step before; else the only name, or attribute,
    that calls of the model take beside an input and return. Empty where there is none, or several, or a line detaches
    it."""
    held = kept_by_model(process)
    if held:
        return held
    names, text = set(), "\n".join(one.source for one in recorded_text.lines(process))
    for place in process.locations("training-call"):
        line = parsed_line.parse(place.source)
        statement = line.statement if line is not None else None
        call = statement.value if isinstance(statement, ast.Assign) else None
        if isinstance(statement, ast.Assign) and isinstance(call, ast.Call) and len(call.args) > 1:
            returned = {ast.unparse(node) for target in statement.targets for node in _parts(target)}
            names |= {ast.unparse(one) for one in call.args if isinstance(one, ast.Name | ast.Attribute)} & returned
    name = names.pop() if len(names) == 1 else ""
    return "" if re.search(rf"(?<![\w.]){re.escape(name)}\b.*(?:\.detach|\.data\b)", text) else name


def runs_through(process: Process) -> str:
    """Which earlier graph backwards that kept theirs were seen to run through: "step before", or one that was made
    "once"; empty where none was seen."""
    return next((str(row["text"]) for row in process.events_of("earlier-graph")), "")


def kept_by_model(process: Process) -> str:
    """The attribute of the only called model through which they do, by the name that the script calls that model by."""
    names = [str(row["called_as"] or "") for row in process.models.records()]
    found = next((row for row in process.events_of("earlier-graph") if row["name"]), None)
    return f"{names[0]}.{found['name']}" if found and len(names) == 1 and names[0] else ""


def _parts(target: ast.expr) -> list[ast.expr]:
    return [part for one in target.elts for part in _parts(one)] if isinstance(target, ast.Tuple) else [target]


def detached(process: Process, state: str) -> str:
    """The line that takes its graph off a state: of an LSTM it is a tuple, which has no `detach`."""
    kinds = {str(row["kind"]) for row in process.tables["modules"].records()} & {*_PAIRS, *_SINGLE}
    held = [row["value"] for row in process.events_of("earlier-graph") if row["name"]] * (
        state == kept_by_model(process)
    )
    pair, single = f"{state} = tuple(part.detach() for part in {state})", f"{state} = {state}.detach()"
    if held:
        return pair if held[0] == 1 else single
    if kinds and kinds <= set(_PAIRS):
        return pair
    return single if kinds and kinds <= set(_SINGLE) else f"{single}  # of an LSTM: {pair.partition(' = ')[2]}"


def remedy(process: Process, backward: Location | None) -> tuple[str, str]:
    """What to change where a backward reached into the graph of the step before, in words and in code; empty where no
    state is known that leads there."""
    state = carried(process)
    if not state:
        return "", ""
    called = next((one.line for one in process.locations("training-call") if state in one.source), 0)
    fix = (
        f"Detach `{state}` behind the backward: the model is called with it in line {called}, returns it, and gets it "
        "at the next step with the graph of this one. retain_graph=True silences the error but keeps all graphs and "
        "makes memory grow."
    )
    plain = backward is not None and ".backward(" in backward.source
    return fix, f"{backward.source if backward and plain else 'loss.backward()'}\n{detached(process, state)}"
