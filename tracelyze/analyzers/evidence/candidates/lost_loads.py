"""The line that loads weights into a copy again and again, and gives it none of those that it has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_INTO: Final = re.compile(r"(?P<copy>[\w.]+)\.load_state_dict\(")
_OF: Final = re.compile(r"(?P<model>[\w.]+)\.state_dict\(\)")


@dataclass(frozen=True)
class LostLoad:
    """A line of load_state_dict that never found a name, if there is one: a sentence, what to do, and an example."""

    location: Location | None = None
    said: str = ""
    fix: str = "Load the policy's weights into the copy before each rollout."
    code: str = "acting.load_state_dict(policy.state_dict())   # before each rollout"


def of(process: Process, least: float) -> LostLoad:
    """The only such line, if it ran at `least` so often, and no load of that model found any of its weights."""
    loads = [row for row in process.tables["loads"].records() if row["expected"]]
    lost = [row for row in loads if row["missing"] == row["expected"]]
    found = {row["name"] for row in loads if row["missing"] < row["expected"]}
    sites = {row["site"] for row in lost if row["name"] not in found}
    place = process.site(next(iter(sites))) if len(sites) == 1 else None
    if place is None or len(lost) < least:
        return LostLoad()
    name, expected = lost[0]["name"], lost[0]["expected"]
    said = f" Line {place.line} gave {name} none of its {expected} weights in all {len(lost)} calls that were seen"
    silent = ", and strict=False raises no error" if "strict" in place.source else ""
    fix = f"Give line {place.line} the names as the copy has them, and let it raise an error where one is missing."
    return LostLoad(place, f"{said}{silent}.", fix, _whole(process, place))


def _whole(process: Process, place: Location) -> str:
    """The load of all weights, by what the script calls the copy and, in the same function, the model."""
    into = _INTO.search(place.source)
    given = [one for one in process.locations("state_dict") if one.file_function == place.file_function]
    models = {match["model"] for one in given if (match := _OF.search(one.source))}
    copy, model = into["copy"] if into else "acting", models.pop() if len(models) == 1 else "policy"
    return f"{copy}.load_state_dict({model}.state_dict())  # in line {place.line}"
