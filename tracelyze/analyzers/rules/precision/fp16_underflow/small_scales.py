"""A loss scale that is as small as the script set it, where GradScaler's own beginning would have been larger."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Diff, Location

DEFAULT: Final = 65536.0  # of torch: 2 ** 16
_NUMBERS: Final = (ast.Constant, ast.BinOp, ast.operator)  # 2.0**4


def begins_at(optimization: Optimization) -> float | None:
    """The scale of the first step, if it is below GradScaler's default and never fell; else None."""
    scale = optimization.steps["scale"]
    scale = scale[np.isfinite(scale)]
    if not len(scale) or scale[0] >= DEFAULT or (np.diff(scale) < 0).any():
        return None
    return float(scale[0])


def with_default(optimization: Optimization, found: Location | None) -> Diff | None:
    """The line with the default in place of a number that is written there."""
    own = own_statement.at(optimization.process, found)
    call = own.only_call("GradScaler") if own is not None else None
    given = [one.value for one in call.keywords if one.arg == "init_scale"] if call is not None else []
    if own is None or len(given) != 1 or not all(isinstance(one, _NUMBERS) for one in ast.walk(given[0])):
        return None
    return own.changed(own.parsed.with_parts({given[0]: "2.0**16"}))


def place(optimization: Optimization) -> Location | None:
    """The only line that makes a scaler, if it is given such a beginning there."""
    found = script_lines.only(optimization.process, "scaler-text", r"GradScaler\s*\(")
    own = own_statement.at(optimization.process, found)
    call = own.only_call("GradScaler") if own is not None else None
    return found if call is not None and any(one.arg == "init_scale" for one in call.keywords) else None
