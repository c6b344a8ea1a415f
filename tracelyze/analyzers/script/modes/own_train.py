"""A `train()` of the script's own that does not hand its mode on: eval(), which is train(False), turns nothing off."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

_DEFINED: Final = re.compile(r"\s*def\s+train\s*\(\s*self\s*,\s*(\w+)")
_WITHOUT_MODE: Final = re.compile(r"\.train\(\s*(?:(?:mode\s*=\s*)?True)?\s*\)|\bModule\.train\(\s*self\s*\)")
_NEAR: Final = 10  # lines from an eval() to a comprehension that is in the same function
_FITS: Final = re.compile(r"\.(?:fit|train|run)\(")
FIX: Final = (
    "Hand the mode on: eval() calls train(False), and line {line} in the script's own train() puts modules into train "
    "mode whatever {mode} is."
)


class Bypass(NamedTuple):
    """The line that ignores the mode, what to do there, and the edit."""

    place: Location
    fix: str
    code: str
    diff: Diff | None


def of(process: Process, seen_at: Location | None) -> Bypass | None:
    """The only line in a `train(self, mode)` of the script that calls another train() without the mode, where eval() is
    called above the validation, or by the framework that validates."""
    lines = [one for one in process.locations("train-mode") if one.function == "train"]
    place = script_lines.only_of([one for one in lines if _WITHOUT_MODE.search(one.source)])
    if place is None or seen_at is None or not _is_evaluated(process, seen_at):
        return None
    defined = [
        found[1]
        for number, text in recorded_text.around(process, place).items()
        if number < place.line and (found := _DEFINED.match(text))
    ]
    own = own_statement.at(process, place)
    if not defined or own is None:
        return None
    mode = defined[-1]
    call = own.only_call("train")
    text = own.parsed.text_of(call) if call is not None else ""
    inner = f"self, {mode}" if "Module.train(" in text else mode
    changed = own.text.replace(text, f"{text.split('.train(')[0]}.train({inner})") if text else ""
    return Bypass(place, FIX.format(line=place.line, mode=mode), changed, own.changed(changed))


def _is_evaluated(process: Process, seen_at: Location) -> bool:
    above = [one for one in process.locations("eval-mode") if one.file == seen_at.file and one.line <= seen_at.line]
    inside = seen_at.function.startswith("<")  # a comprehension: its function is not known
    evaluated = [one for one in above if one.function == seen_at.function or (inside and _is_near(one, seen_at))]
    return bool(evaluated) or any(_FITS.search(one.source) for one in process.locations("step"))


def _is_near(evaluates: Location, seen_at: Location) -> bool:
    return evaluates.function != "train" and seen_at.line - evaluates.line <= _NEAR
