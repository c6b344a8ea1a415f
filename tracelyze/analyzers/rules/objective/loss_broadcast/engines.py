"""Engines of Ignite, which call the loss themselves: what they give it is changed where the script makes the engine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_ENGINE: Final = re.compile(r"^(?P<engine>[A-Za-z_]\w*)\.run\(")
_MAKERS: Final = {True: "create_supervised_trainer", False: "create_supervised_evaluator"}  # whether it trains
_PLACES: Final = {True: 6, False: 5}  # of model_transform among their arguments


def shaped(process: Process, called: Location | None, training: bool, dim: int, longer_output: bool) -> Remedy | None:
    """An engine that takes a dimension of size 1 off the output of the model before its loss, or adds one. None where
    the loss is not computed by the only engine of its kind that the script makes, or it has a transform already."""
    run = _ENGINE.match(called.source) if called is not None else None
    maker = _MAKERS[training]
    made = recorded_text.matching(process, re.compile(rf"(?<!def )\b{maker}\s*\("))
    own = own_statement.at(process, made[0]) if run is not None and len(made) == 1 else None
    call = own.only_call(maker) if own is not None else None
    if own is None or call is None or len(call.args) > _PLACES[training]:
        return None
    if any(one.arg in ("model_transform", "model_fn") for one in call.keywords):
        return None
    if not own.text.startswith(f"{run['engine']} =" if run is not None else ""):
        return None
    how, what = ("squeeze", "take the dimension of size 1 off") if longer_output else ("unsqueeze", "add one of size 1")
    edit = own.changed(own.with_argument((maker,), "model_transform", f"lambda output: output.{how}({dim})"))
    fix = (
        f"Give both the same shape: the engine gives the loss what model_transform makes of an output, so {what} there."
    )
    others = recorded_text.matching(process, re.compile(rf"(?<!def )\b{_MAKERS[not training]}\s*\("))
    if len(others) == 1:
        fix += f" Line {others[0].line} needs the same if its engine computes this loss."
    return Remedy(fix, place=made[0], diff=edit) if edit is not None else None
