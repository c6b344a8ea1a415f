"""What to change in the step of an optimizer that leaves parameters as they are."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence.editing import parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

FIX: Final = (
    "Look at what the optimizer's step does with these tensors: an update of a copy (p = p - ... instead of "
    "p.sub_(...)), a step that another wrapper replaced, weights that are copied back from elsewhere."
)
FIX_CODE: Final = 'with torch.no_grad():\n    p.sub_(group["lr"] * p.grad)'
AT_ZERO: Final = (
    " They are all zero, and an update in proportion to the size of the weights, as by the trust ratio of LARS and "
    "LAMB, is nothing for these; no gradient flows back through a weight of zero, either."
)
FIX_AT_ZERO: Final = (
    "In the optimizer's step use a trust ratio of 1 where the norm of the weights is zero, as LARS and LAMB do; or let "
    "these weights begin with small random numbers."
)
CODE_AT_ZERO: Final = (
    "trust = torch.where(p.norm() > 0, trust, 1.0)  # right behind the line that computes it; p: the parameter"
)
REACH: Final = (
    "Line {line} calls the step, and never ran: it stands behind a condition that was never true, or in a function "
    "that was not called. Have it run after backward(), whatever that condition is for."
)
_STEPS: Final = re.compile(r"\bopt\w*(?:\[[^\]]*\])?\.step\s*\(|\.step\s*\(\s*(?:self\.)?opt")  # or by a scaler


def in_the_text(process: Process) -> Location | None:
    """The only line of the script that calls the step of an optimizer, as its name says; it need not have run."""
    lines = [one for one in process.locations("step-text") if _STEPS.search(one.source)]
    return lines[0] if len(lines) == 1 else None


def advice(made_anew: Location | None, at_zero: bool) -> tuple[str, str]:
    """Words and an example. `made_anew`: the line that makes a new tensor, written into the old one instead."""
    if at_zero:
        return FIX_AT_ZERO, CODE_AT_ZERO
    line = parsed_line.parse(made_anew.source) if made_anew else None
    own = line.statement if line is not None else None
    if line is None or not isinstance(own, ast.Assign) or not isinstance(own.targets[0], ast.Name):
        return FIX, FIX_CODE
    return FIX, f"with torch.no_grad():\n    {own.targets[0].id}.copy_({line.text_of(own.value)})"


def rebound(process: Process, defined: Location | None) -> Location | None:
    """The only line of the optimizer's own step, `defined` there, that gives the variable of its loop a new value."""
    if defined is None:
        return None
    lines = [one for one in process.locations("rebound") if one.file == defined.file and one.line > defined.line]
    return lines[0] if len(lines) == 1 else None
