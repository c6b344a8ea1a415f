"""A training that accumulates gradients and ends once it has made as many batches as it was to make updates."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Evidence, Finding, Location
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.rule import Limits

_LEAVES: Final = re.compile(r"\s*if (?P<count>[A-Za-z_][\w.]*)(?: \+ 1)? (?:>=|>|==) (?P<limit>[A-Za-z_][\w.]*):")
_OUT: Final = re.compile(r"\s*(?:break|return)\b")
_BETWEEN: Final = 3  # lines of such a condition, the one that leaves the loop among them


class _Counted(NamedTuple):
    """`updates`: what so many epochs make, of `each` batches; `place`: the line that compares; names in it."""

    updates: int
    each: int
    place: Location
    counter: str
    limit: str


def finding(optimization: Optimization, rule: str, planned: int, length: int, limits: Limits) -> Finding | None:
    """`planned`: epochs that the loop is written for, of `length` batches each."""
    seen = _counted(optimization, planned, length, limits)
    if seen is None:
        return None
    process, made = optimization.process, len(optimization.steps)
    loop = process.location("epochs")
    where, each = f" (line {loop.line})" if loop else "", f"{seen.counter} // {_divisor(optimization, seen)}"
    said = recorded_text.of_function(process, seen.place).values()
    alone = sum(line.strip() == seen.place.source for line in said) == 1
    own = own_statement.at(process, seen.place) if alone else None
    text = re.sub(rf"(?<![\w.]){re.escape(seen.counter)}(?![\w.])", each, seen.place.source, count=1)
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"The training ended after 1/{seen.each} of its {planned} epochs: it counts batches as updates",
        summary=(
            f"The loop over the epochs{where} is written for {planned} of {plural(length, 'batch')}, which make "
            f"{seen.updates:,} updates of {seen.each} batches each. Line {seen.place.line} left it after as many "
            f"batches, that is {plural(made, 'update')}: {seen.counter} counts batches there, and {seen.limit} is a "
            "number of updates. A schedule made for these updates is as far from its end."
        ),
        fix="Compare like with like: count updates, where the optimizer steps, or divide the batches by those of one.",
        fix_code=f"{text}\n    break",
        first_step=timing.last_step(optimization),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("updates made, of those of all epochs", made / seen.updates, "share",
                     *limits.against("part"), role="most"),
            Evidence("batches of an update", seen.each, "batches"),
            Evidence("epochs of the loop", planned, "epochs", *limits.against("epochs")),
        ],
        location=seen.place,
        charts=pictures.loss(optimization),
        false_alarm="A limit that is meant in batches, and happens to be that number.",
        diff=own.changed(text) if own is not None and own.text.startswith(seen.place.source) else None,
    )  # fmt: skip


def _counted(optimization: Optimization, planned: int, length: int, limits: Limits) -> _Counted | None:
    """Whether the batches of all steps, and those after the last one, came to the number of updates in all epochs."""
    backwards = optimization.steps["backwards"]
    usual = float(np.nanmedian(backwards)) if np.isfinite(backwards).any() else 1.0
    each, total = int(usual), int(np.nansum(backwards))
    if each < 2 or usual != each or len(backwards) < limits["steps"]:
        return None
    ways = {planned * length // each, planned * (length // each), planned * math.ceil(length / each)}
    meant = [updates for updates in ways if total <= updates + 1 and updates < total + each]
    place = _leaving(optimization) if meant else None
    found = _LEAVES.match(place.source) if place is not None else None
    if place is None or found is None:
        return None
    return _Counted(meant[0], each, place, found["count"], found["limit"])


def counts_each(optimization: Optimization) -> bool:
    """Whether the script is seen to count each batch, under no condition, where that count leaves the loop."""
    place = _leaving(optimization)
    found = _LEAVES.match(place.source) if place is not None else None
    lines = recorded_text.of_function(optimization.process, place) if place is not None else {}
    if found is None:
        return False
    counts = [at for at, line in lines.items() if re.match(rf"\s*{re.escape(found['count'])} \+= 1\s*(?:#|$)", line)]
    heads = [_head(lines, at) for at in counts]
    return bool(heads) and all(re.match(r"\s*(?:for|with)\b", head) for head in heads)


def _head(lines: dict[int, str], line: int) -> str:
    """The line above that begins the block in which a line stands; empty where it was not recorded."""
    depth = recorded_text.indent_of(lines[line])
    above = [lines[at] for at in sorted(lines) if at < line and lines[at].strip()]
    return next((one for one in reversed(above) if recorded_text.indent_of(one) < depth), "")


def _leaving(optimization: Optimization) -> Location | None:
    """The only condition below the backward, among the lines that were recorded, by which a count leaves the loop; the
    first of several that say the same."""
    backward = optimization.backward_location
    lines = recorded_text.of_function(optimization.process, backward) if backward is not None else {}
    found = []
    for at, line in lines.items():
        if backward is None or at <= backward.line or not _LEAVES.match(line):
            continue
        within = [lines.get(at + more, "") for more in range(1, _BETWEEN + 1)]
        depth = recorded_text.indent_of(line)
        if any(_OUT.match(one) and recorded_text.indent_of(one) > depth for one in within) or _leaves_itself(line):
            found.append(backward.at(at, line))
    return found[0] if len({one.source for one in found}) == 1 else None


def _leaves_itself(line: str) -> bool:
    return re.search(r":\s*(?:break|return)\b", line) is not None


def _divisor(optimization: Optimization, seen: _Counted) -> str:
    """What the script calls the batches of an update, where it asks the same count for its remainder."""
    lines = recorded_text.of_function(optimization.process, seen.place).values()
    asked = rf"(?<![\w.]){re.escape(seen.counter)} % (?P<each>[A-Za-z_][\w.]*) == 0"
    names = {found["each"] for line in lines if (found := re.search(asked, line))}
    return names.pop() if len(names) == 1 else str(seen.each)
