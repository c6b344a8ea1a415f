"""Parameters that begin from answers of a model whose normalisations no batch had set: cluster centres or a codebook
that k-means finds before the model is trained.

Training then normalises by its own batches, so that what it compares with these parameters lies elsewhere.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.analyzers.script.names import names_in
from tracelyze.analyzers.script.settings import callers
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.analyzers.script.settings.callers import Called

_STARTED: Final = re.compile(r"weight|\.data\b|cent(?:er|re|roid)|proto|cluster|code|anchor|embed", re.IGNORECASE)
_HOLDS: Final = ("append", "extend", "add", "fit")  # of answers, a batch at a time, or of their clusters
_SET: Final = """# above line {line}
model.train()
with torch.no_grad():
    for batch in loader:  # the training data
        ...  # call the model on the batch, as training does
model.eval()"""
_NO_MODE: Final = r"(?!\s*(?:True|False)?\s*\))"


class Begun(NamedTuple):
    """`place`: the call of the function that does it, else the call of the model."""

    place: Location
    said: str
    fix: str
    code: str
    diff: Diff | None


def of(process: Process, row: dict[str, Any]) -> Begun | None:
    """Of a call before the first step with unset statistics (a row of the table unset), in a function of the script
    that keeps what comes of the answers as parameters, where the model is trained later and never asked there again."""
    evals = process.evals
    here = (evals["model"] == row["model"]) & (evals["after_step"] == row["step"])
    at: list[int] = np.flatnonzero(here & (evals["trained"] == 1)).tolist() if row["modules"] else []
    site = float(evals["site"][at[0]]) if len(at) else float("nan")
    place = process.site(site)
    if (
        place is None
        or place.function == "<module>"
        or (evals["after_step"][evals["site"] == site] != row["step"]).any()
    ):
        return None
    kept = _kept(process, place)
    if kept is None:
        return None
    line, name = kept
    said = (
        f"Line {line} makes {name} of its answers, and training starts from that. In train mode the same layers "
        "normalise by the statistics of a batch, and their answers lie elsewhere."
    )
    calls = callers.of(process, place.function, place.file)
    call = calls[0] if len(calls) == 1 and not _trains_too(process, place) else None
    trains = _training(process, call, evals["optimizer"][at[0]]) if call is not None else None
    if call is None or trains is None:
        change = call.place if call is not None else place
        fix = f"Above line {change.line}, let the model run over the data in train mode: that sets its statistics."
        return Begun(change, said, fix, _SET.format(line=change.line), None)
    fix = (
        f"Call {place.function} after line {trains.own.line}, which trains the model; or let the model run over the "
        "data in train mode before it."
    )
    code = f"{trains.own.dedented(trains.own.text)}\n{call.own.dedented(call.own.text)}"
    return Begun(call.place, said, fix, code, _below(process, call, trains))


def _kept(process: Process, place: Location) -> tuple[int, str] | None:
    """The line of the function that makes parameters of what the call at a place answers, and how it names them."""
    lines = recorded_text.of_function(process, place)
    holding: set[str] = set()
    last = 0
    for number in (one for one in sorted(lines) if one >= place.line):
        own = own_statement.at(process, place.at(number, lines[number]))
        if own is None or own.line <= last or not own.is_whole:
            continue
        last = own.line
        statement = own.parsed.statement
        uses = names_in(own.parsed.tree)
        if own.line > place.line and not uses & holding:
            continue
        parameter = _as_parameter(own, statement)
        if parameter and own.line > place.line:
            return own.line, parameter
        holding |= _assigned(statement)
    return None


def _as_parameter(own: OwnStatement, statement: ast.stmt | None) -> str:
    """What a statement fills: `self.centers = nn.Parameter(z)`, `layer.weight.data = z`, `centers.data.copy_(z)`."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = ast.unparse(statement.targets[0])
        return target.removesuffix(".data") if target.endswith(".data") or own.parsed.calls("Parameter") else ""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "copy_":
        filled = ast.unparse(call.func.value)
        return filled.removesuffix(".data") if _STARTED.search(filled) else ""
    return ""


def _assigned(statement: ast.stmt | None) -> set[str]:
    """The names that hold what a statement computes."""
    if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return set().union(*map(names_in, targets)) - {"self"}
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _HOLDS:
        return {call.func.value.id} if isinstance(call.func.value, ast.Name) else set()
    return set()


def _trains_too(process: Process, place: Location) -> bool:
    """Whether the function of a line makes optimizer steps as well, or calls the function that does."""
    steps, lines = process.functions("step"), recorded_text.of_function(process, place).values()
    names = {re.escape(function) for _, function in steps if function.isidentifier()}
    calls = [re.compile(rf"(?<!def )\b{one}\s*\({_NO_MODE if one == 'train' else ''}") for one in names]
    return place.file_function in steps or any(call.search(line) for call in calls for line in lines)


def _training(process: Process, call: Called, optimizer: float) -> Called | None:
    """The only call, below this one in the same function, of the function where the model's optimizer steps, and where
    another training follows: behind the last one the parameters would train no more."""
    known = process.optimizations
    steps = [one.step_location for one in known[:-1] if one.optimizer == optimizer]
    if not steps or steps[0] is None:
        return None
    trains = [one for one in callers.of(process, steps[0].function, steps[0].file) if not _sets_mode(one.call)]
    same = [one for one in trains if one.place.file_function == call.place.file_function]
    return same[0] if len(same) == len(trains) == 1 and same[0].own.line > call.own.line else None


def _sets_mode(call: ast.Call) -> bool:
    """Whether a call is `model.train()`, and not that of a function that goes by the same name."""
    return (
        name_of(call.func) == "train" and all(isinstance(one, ast.Constant) for one in call.args) and not call.keywords
    )


def _below(process: Process, call: Called, trains: Called | None) -> Diff | None:
    """The statement moved below the one that trains, where it gives no name a value and both stand in one block."""
    lines = recorded_text.of_file(process, call.place.file)
    if trains is None or not isinstance(call.own.parsed.statement, ast.Expr) or trains.own.indent != call.own.indent:
        return None
    first, last = call.own.line, trains.own.line + trains.own.text.count("\n")
    between = [lines.get(at) for at in range(first, last + 1)]
    block = [one for one in between if one is not None]
    if len(block) != len(between) or any(
        one.strip() and recorded_text.indent_of(one) < len(call.own.indent) for one in block
    ):
        return None
    height = call.own.text.count("\n") + 1
    return Diff(call.place.file, first, block, [*block[height:], *block[:height]])
