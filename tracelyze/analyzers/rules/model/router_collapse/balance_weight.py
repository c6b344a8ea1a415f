"""The setting that weighs a term for the balance of experts, where it is 0: the term counts for nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.recorded.run import location_of
from tracelyze.analyzers.rules.model.router_collapse.balance_term import Mistake
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.settings import constants
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_BALANCES: Final = r"(?:\w*balanc\w*|(?:\w+_)?(?:aux|lb)(?:_\w+)?|(?:load|router|moe)_loss)"
_WEIGHS: Final = r"(?:weight|coeff?|coefficient|alpha|lambda|factor|scale|w)"
_NAMES: Final = re.compile(rf"(?!\w*z_loss){_BALANCES}_{_WEIGHS}|{_WEIGHS}_{_BALANCES}", re.IGNORECASE)
"""`balance_weight`, `aux_loss_coef`, `lb_alpha`; no `aux_loss`, which sums begin with, and not that of the z-loss."""
_GIVEN: Final = re.compile(r"(?<![\w.])(?P<name>[A-Za-z]\w*)\s*(?::\s*\w+\s*)?=\s*(?P<value>\d[^,;)\]}#]*)")
_SET: Final = re.compile(r"\s*(?:\w+\.)*(?P<name>[A-Za-z]\w*)\s*[-+*]?=(?!=)\s*(?P<value>[^\d\s].*)")
_ENOUGH: Final = "0.01"
"""What papers and libraries weigh such a term by."""


def zero(process: Process) -> Mistake | None:
    """The only line that gives such a setting the value 0, unless another one or the command line gives it another, or
    a line computes it, as for a weight that grows. A bias on the choice of experts, moved by hand, needs no such term.
    """
    found: dict[tuple[str, int], tuple[str, Location, str]] = {}
    values: set[bool] = set()
    for row in process.sites.records():
        if row["role"] == "constant" and _NAMES.fullmatch(str(row["own_name"] or row["name"])):
            values.add(_is_zero(str(row["value"])))
            place = location_of(row)
            found[place.file_line] = str(row["own_name"] or row["name"]), place, _edited(row)
    for one in recorded_text.matching(process, _GIVEN):
        given = [match for match in _GIVEN.finditer(code_of(one.source)) if _NAMES.fullmatch(match["name"])]
        values.update(_is_zero(match["value"]) for match in given)
        if given and one.file_line not in found:
            found[one.file_line] = given[0]["name"], one, ""
    if values != {True} or len(found) != 1 or process.locations("balance") or _is_computed(process):
        return None
    ((name, place, code),) = found.values()
    if constants.is_on_the_command_line(process, name):
        return None
    fix = (
        f"Set {name} in line {place.line} to about {_ENOUGH}: it is 0, and by its name the weight of the balancing "
        "loss, which then counts for nothing. Raise it until no expert gets nearly all tokens."
    )
    return Mistake(place, fix, code or f"{name} = {_ENOUGH}")


def _is_computed(process: Process) -> bool:
    """Whether a line gives such a setting something else than a number, and than what another such setting holds."""
    for one in recorded_text.matching(process, _SET):
        given = _SET.match(one.source)
        if given is not None and _NAMES.fullmatch(given["name"]):
            names = re.findall(r"[A-Za-z]\w*", code_of(given["value"]))
            if not any(_NAMES.fullmatch(name) for name in names):
                return True
    return False


def _is_zero(value: str) -> bool:
    try:
        return float(value) == 0
    except ValueError:
        return False


def _edited(row: dict[str, Any]) -> str:
    edit = constants.edit_of(row, _ENOUGH)
    return edit.added[0].strip().rstrip(",") if edit is not None else ""
