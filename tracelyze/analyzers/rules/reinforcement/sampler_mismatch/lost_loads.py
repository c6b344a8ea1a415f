"""The copy of a policy that acts with the weights of the first step: the line that loads weights into it again and
again and gives it none of those that it has, else the line that makes the copy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_INTO: Final = re.compile(r"(?P<copy>[\w.]+)\.load_state_dict\(")
_COPIES: Final = re.compile(r"(?P<copy>[\w.]+) = (?:copy\.)?deepcopy\((?P<model>[\w.]+)\)")
_MAKING: Final = ("freeze", "reference", "eval-mode")  # roles of lines that may make a copy, too
_MERGED: Final = """\
policy.merge_adapter()    # peft: adds what the adapters have learned to the weights
...                       # the copy takes the weights, as it does today
policy.unmerge_adapter()"""
_OF: Final = re.compile(r"(?P<model>[\w.]+)\.state_dict\(\)")


@dataclass(frozen=True)
class LostLoad:
    """A line of load_state_dict that never found a name, else the only line that makes a copy, if there is one: a
    sentence, what to do, and an example."""

    location: Location | None = None
    said: str = ""
    fix: str = "Load the policy's weights into the copy before each rollout."
    code: str = "acting.load_state_dict(policy.state_dict())   # before each rollout"
    untaken: str = "weights"


def of(process: Process, least: float, adapters: bool = False) -> LostLoad:
    """The only line that loads, if it ran at `least` so often, and no load of that model found any of its weights.
    `adapters`: the copy has what the policy has beside them."""
    if adapters:
        return _unmerged(process)
    loads = [row for row in process.tables["loads"].records() if row["expected"]]
    lost = [row for row in loads if row["missing"] == row["expected"]]
    found = {row["name"] for row in loads if row["missing"] < row["expected"]}
    sites = {row["site"] for row in lost if row["name"] not in found}
    place = process.site(next(iter(sites))) if len(sites) == 1 else None
    if place is None or len(lost) < least:
        return _made(process)
    name, expected = lost[0]["name"], lost[0]["expected"]
    said = f" Line {place.line} gave {name} none of its {expected} weights in all {len(lost)} calls that were seen"
    silent = ", and strict=False raises no error" if "strict" in place.source else ""
    fix = f"Give line {place.line} the names as the copy has them, and let it raise an error where one is missing."
    return LostLoad(place, f"{said}{silent}.", fix, _whole(process, place))


def _unmerged(process: Process) -> LostLoad:
    """The only line that loads weights again and again, those beside the adapters."""
    sites = [row["site"] for row in process.tables["loads"].records() if row["expected"]]
    again = {one for one in sites if one is not None and sites.count(one) > 1}
    merged = any((name or "").startswith("Peft") for name in process.tables["models"].text("name"))
    return LostLoad(
        process.site(next(iter(again))) if len(again) == 1 else None,
        " It holds the weights beside the policy's adapters, and only these adapters are trained.",
        "Merge the adapters into the weights before the copy takes them, and take them out again after it.",
        _MERGED if merged else "",
        "adapters",
    )


def _made(process: Process) -> LostLoad:
    """The only recorded line that copies a whole model."""
    copied = {
        (one.file, one.line): (one, found)
        for role in _MAKING
        for one in process.locations(role)
        if (found := _COPIES.match(one.source))
    }
    if len(copied) != 1:
        return LostLoad()
    ((place, made),) = copied.values()
    code = f"{made['copy']}.load_state_dict({made['model']}.state_dict())  # before each rollout"
    return LostLoad(place, f" Line {place.line} makes the copy.", code=code)


def _whole(process: Process, place: Location) -> str:
    """The load of all weights, by what the script calls the copy and, in the same function, the model."""
    into = _INTO.search(place.source)
    given = [one for one in process.locations("state_dict") if one.file_function == place.file_function]
    models = {match["model"] for one in given if (match := _OF.search(one.source))}
    copy, model = into["copy"] if into else "acting", models.pop() if len(models) == 1 else "policy"
    return f"{copy}.load_state_dict({model}.state_dict())  # in line {place.line}"
