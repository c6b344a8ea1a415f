"""Rewards that are all one number, as the script held them while its policy's loss went backward, and the line of its
reward function that compares."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.rules.reinforcement.zero_advantage import coarse_rewards
from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats

_FEWEST: Final = 3  # looks: rewards of one or two steps may be equal by chance


@dataclass(frozen=True)
class EqualRewards:
    """The variable with the rewards, the number that all of them are, and the line of the only reward function that
    rounds, or compares, else that defines it; without such a function the line that assigns the rewards."""

    name: str
    value: float
    place: Location | None


def at(process: Process, steps: Floats) -> EqualRewards | None:
    """The one value that all rewards of these steps have; None where rewards differ, or none were seen."""
    rows = [row for row in process.events_of("policy-choices") if row["step"] in steps]
    held = [_rewards(json.loads(row["text"])) for row in rows]
    seen = [one for one in held if one is not None]
    if len(seen) < _FEWEST or len({name for name, _ in seen}) > 1 or len({facts["mean"] for _, facts in seen}) > 1:
        return None
    if any(facts["spread"] != 0 for _, facts in seen):
        return None
    name, facts = seen[0]
    gives = script_lines.only(process, "reward")
    compares = script_lines.only(process, "reward-compared")
    same = gives is not None and compares is not None and compares.function == gives.function
    rounds = coarse_rewards.within(process, gives)
    place = rounds if rounds != gives else compares if same else gives
    return EqualRewards(name, float(facts["mean"]), place or _assigned(process, name))


def _assigned(process: Process, name: str) -> Location | None:
    """The only line that assigns the rewards, above the one that computes advantages of them."""
    made = script_lines.only(process, "advantage")
    lines = recorded_text.of_function(process, made) if made is not None else {}
    assigns = re.compile(rf"\s*{re.escape(name)}\s*=(?!=)")
    found = [number for number, line in lines.items() if assigns.match(line)]
    if made is None or len(found) != 1 or found[0] >= made.line:
        return None
    return made.at(found[0], lines[found[0]])


def _rewards(facts: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The only variable of several elements that is named after rewards; else the only one that advantages are made
    of."""
    named = {name: one for name, one in (facts.get("rewards") or {}).items() if one["kind"] == "elements"}
    found = named or facts.get("weighed") or {}
    return next(iter(found.items())) if len(found) == 1 else None


def example(process: Process, place: Location | None) -> str:
    """Both sides of the comparison, printed where it is made; empty where the line makes none, or several."""
    own = own_statement.at(process, place)
    compared = [one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.Compare)] if own is not None else []
    if own is None or place is None or len(compared) != 1 or len(compared[0].comparators) != 1:
        return ""
    left, right = (own.parsed.text_of(one) for one in (compared[0].left, compared[0].comparators[0]))
    return f"print(repr({left}), repr({right}))  # above line {place.line}: can they ever be equal?"
