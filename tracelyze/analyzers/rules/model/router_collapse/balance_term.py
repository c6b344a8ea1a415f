"""The line that takes a term for the balance of experts off the loss instead of adding it; where one would be added."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.comments import code_of
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_LOSS: Final = re.compile(
    r"\s*(?:return\b|(?:self\.)?\w*(?:loss|total|objective|cost)\w*\s*[-+]?=(?!=))|.*\.backward\("
)
_TAKEN: Final = re.compile(
    r"(?P<left>[A-Za-z_)\]][\w.)\]]*\s*)-"
    r"(?P<right>=?\s*\(?(?:[\w.\[\]'\"]+\s*\*\s*)?(?P<name>[A-Za-z_][\w.]*))"
)
_GIVEN: Final = re.compile(r"\+=?\s*\(?(?:[\w.\[\]'\"]+\s*\*\s*)?(?P<name>[A-Za-z_][\w.]*)")
_TURNED: Final = re.compile(r"(?:[=(,]|\breturn)\s*-\s*\(?(?P<name>[A-Za-z_][\w.]*)")
_BALANCE: Final = re.compile(r"balanc|aux|load|rout|gating|importance|(?:^|_)lb(?:_|$)", re.IGNORECASE)
_REWARDED: Final = re.compile(r"entropy|\bent\b|_ent\b|uniform", re.IGNORECASE)  # of these, more is a better balance
_ASSIGNS_LOSS: Final = re.compile(r"(?:\w*_)?loss\s*=(?!=)")


class Mistake(NamedTuple):
    """The line that turns a balance into its opposite, what to do about it, and the line as it is to be."""

    place: Location
    fix: str
    code: str


def taken_off(process: Process) -> Mistake | None:
    """The only recorded line of a loss that subtracts what is named after the balance of experts."""
    found = {}
    for one in recorded_text.lines(process):
        line = code_of(one.source).strip()
        if _LOSS.match(line) and subtracted(line):
            found[one.file_line] = replace(one, source=line)
    taken = script_lines.only_of(list(found.values()))
    if taken is None:
        return None
    fix = (
        f"Add {subtracted(taken.source)} to the loss, which line {taken.line} subtracts: what grows where few experts "
        "get all tokens, as experts * sum(share * probability) does, is then a reward instead of a cost. Keep the sign "
        "only if it grows with an even share, and raise its weight."
    )
    return Mistake(taken, fix, added(taken))


def is_of_a_loss(line: str) -> bool:
    """Whether a line makes a loss, hands one back or calls its backward."""
    return _LOSS.match(line) is not None


def is_turned(line: str) -> bool:
    """Whether a line has a minus right in front of a term for the balance, with nothing that it is taken off."""
    return any(_BALANCE.search(one["name"]) for one in _TURNED.finditer(line))


def sign(line: str) -> str:
    """Whether a line of a loss adds a term for the balance ("+") or takes it off ("-"); empty where it does neither."""
    return (
        "-" if subtracted(line) else "+" if any(_BALANCE.search(one["name"]) for one in _GIVEN.finditer(line)) else ""
    )


def subtracted(line: str) -> str:
    """The term for the balance that a line subtracts, empty where it subtracts none."""
    names = [match["name"] for match in _TAKEN.finditer(line)]
    return next((name for name in names if _BALANCE.search(name) and not _REWARDED.search(name)), "")


def added(line: Location) -> str:
    """The line with that term added."""
    name = subtracted(line.source)
    return _TAKEN.sub(
        lambda found: f"{found['left']}+{found['right']}" if found["name"] == name else found[0], line.source
    )


def added_at(process: Process, backward: Location | None) -> Location | None:
    """Where such a term would be added: the last line of the function above its backward that assigns the loss."""
    lines = [one for one in process.locations("loss") if _ASSIGNS_LOSS.match(one.source)]
    lines = [one for one in lines if backward and one.file_function == backward.file_function]
    return max((one for one in lines if backward and one.line < backward.line), key=lambda one: one.line, default=None)
