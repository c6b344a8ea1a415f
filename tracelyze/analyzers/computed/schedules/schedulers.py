"""What is known of each learning-rate scheduler, and the line that gives an optimizer its rate."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.evidence import line_edits

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Diff, Location

Row = dict[str, Any]
"""One scheduler: a row of the table schedules."""

_OWN_RATE: Final = ("OneCycleLR", "CyclicLR")  # are given rates, whatever the optimizer was made with
_GIVEN_RATE: Final = re.compile(r"\b(lr|max_lr)\s*=\s*\d[\d._]*(?:e[-+]?\d+)?(?=\s*[,)])", re.IGNORECASE)


def last_rows(process: Process) -> list[Row]:
    """What is known last of each scheduler."""
    return list({row["scheduler"]: row for row in process.tables["schedules"].records()}.values())


def rate_location(optimization: Optimization, raised: bool = False) -> Location | None:
    """The line that gives an optimizer its rate: its construction; that of its scheduler, where the scheduler is given
    a rate of its own, or has `raised` the optimizer's. The line of the step, where a framework makes both."""
    rows = [row for row in last_rows(optimization.process) if row["optimizer"] == optimization.optimizer]
    outer = [row for row in rows if not row["inner"]]
    scheduler = outer[0] if len(outer) == 1 and (raised or outer[0]["name"] in _OWN_RATE) else None
    if scheduler is not None:
        return optimization.process.site(scheduler["made_at"]) or optimization.step_location
    return (None if raised else optimization.made_at) or optimization.step_location


def edit_of_rate(optimization: Optimization, rate: float) -> Diff | None:
    """The line that gives the rate, with this rate, where the line says it in numbers."""
    place = rate_location(optimization)
    if (
        place is None
        or len(_GIVEN_RATE.findall(place.source)) != 1
        or place.source.count("(") != place.source.count(")")
    ):
        return None
    return line_edits.line_for(optimization.process, place, with_rate(optimization, rate))


def with_rate(optimization: Optimization, rate: float) -> str:
    """An example that sets this rate: the line that gives it, where that says it in numbers."""
    place = rate_location(optimization)
    line = place.source.strip() if place else ""
    if len(_GIVEN_RATE.findall(line)) == 1 and line.count("(") == line.count(")"):
        return _GIVEN_RATE.sub(rf"\g<1>={rate:.2g}", line)
    if "OneCycleLR" in line:
        return f"scheduler = OneCycleLR(optimizer, max_lr={rate:.2g}, total_steps=total_steps)"
    name = optimization.facts.get("name")
    by_name = f"optimizer = torch.optim.{name}(model.parameters(), lr={rate:.2g})"
    return by_name if name else f'for group in optimizer.param_groups:\n    group["lr"] = {rate:.2g}'
