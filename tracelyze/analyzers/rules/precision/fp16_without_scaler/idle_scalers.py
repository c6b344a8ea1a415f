"""A GradScaler that the script makes and that never scaled a loss, because what `enabled` is given was false."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_SCALES: Final = ".scale("  # scaler.scale(loss).backward()
_MAKES: Final = ("GradScaler", "ShardedGradScaler")


def made(process: Process) -> Location | None:
    """The only line that makes a GradScaler, if it is told whether to be enabled; for runs in which none scaled."""
    place = script_lines.only(process, "scaler-text", r"GradScaler\s*\(")
    own = own_statement.at(process, place)
    call = own.only_call(*_MAKES) if own is not None else None
    given = [one.value for one in call.keywords if one.arg == "enabled"] if call is not None else []
    told = bool(given) and not (isinstance(given[0], ast.Constant) and given[0].value is True)
    return place if told else None


def said(process: Process, place: Location | None) -> str:
    """Which scaler there is, as a part of a sentence."""
    if place is None:
        return "no GradScaler was used"
    used = any(_SCALES in one.source for one in process.locations("backward"))
    why = "its `enabled` was false" if used else "it was told not to be enabled, or is not used"
    return f"the GradScaler that line {place.line} makes scaled no loss: {why}"


def enabled(process: Process, place: Location | None) -> str:
    """The line with the scaler enabled; empty where there is none."""
    own = own_statement.at(process, place)
    return own.dedented(own.with_argument(_MAKES, "enabled", "True")) if own is not None else ""
