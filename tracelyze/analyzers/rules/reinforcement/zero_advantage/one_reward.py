"""A reward that is one number in all that was logged: which line of the only reward function can make it so."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.rules.reinforcement.zero_advantage import special_tags
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.signatures import metrics
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Finding, Location

_FEWEST: Final = 3  # logs: those of one or two steps may be equal by chance
_SEARCHES: Final = ("search", "match", "fullmatch", "findall", "finditer")


def told(process: Process, finding: Finding) -> Finding:
    """The finding, with tags that no reward function sees; else with the reward that all completions got, and where
    the function that gives it looks for one pattern, and no other line of it can decide, also with that line."""
    tags = special_tags.of(process)
    if tags is not None:
        return replace(finding, location=tags.place, fix=tags.fix, fix_code=tags.code)
    value, gives = _logged(process), script_lines.only(process, "reward")
    place = finding.location
    if value is None or gives is None or place is None or place.file_function != gives.file_function:
        return finding
    level, count = metrics.metric(process, "reward"), number(value)
    logs = plural(len(level), "log") if level is not None else "all logs"
    finding = replace(
        finding, summary=f"{finding.summary} The mean reward is {count} in {logs}, and rewards differ within no group."
    )
    if place != gives:  # a line of the function is known already
        return finding
    place = _search(process, gives, value)
    own = own_statement.at(process, place)
    if place is None or own is None:
        return finding
    text = _searched(own)
    special = _without_special(process) if level is not None and metrics.is_of_trl(process, level) else ""
    fix = (
        f"Every completion gets {count}: see whether line {place.line} ever finds what it looks for. If it does, the "
        f"prompts are all too easy or too hard: choose others, or reward a part of the task.{special}"
    )
    code = f"print(repr({text}))  # above line {place.line}: does it hold what is looked for?"
    return replace(finding, location=place, fix=fix, fix_code=code)


def _without_special(process: Process) -> str:
    """What no reward function of TRL sees, with the line that adds such tokens."""
    adds = special_tags.adds(process)
    where = f"line {adds.line} adds" if adds is not None else "were added"
    return f" TRL hands completions over without special tokens: tags that {where} to the tokenizer as such are gone."


def _logged(process: Process) -> float | None:
    """The only mean reward of a run's logs, where no group had a spread; None where there are too few, or several."""
    reward = metrics.metric(process, "reward")
    spread, alike = metrics.metric(process, "reward_std"), metrics.metric(process, "groups_alike")
    if reward is None or len(reward) < _FEWEST or len(np.unique(reward.values)) > 1:
        return None
    even = [bool((spread.values == 0).all())] if spread is not None else []
    even += [bool((alike.values == 1).all())] if alike is not None else []
    return float(reward.values[0]) if even and all(even) else None


def _search(process: Process, gives: Location, value: float) -> Location | None:
    """The only line of the function that looks for a pattern, unless a comparison may give all this reward."""
    looks = [one for one in process.locations("reward-searched") if one.file_function == gives.file_function]
    compares = [one for one in process.locations("reward-compared") if one.file_function == gives.file_function]
    found = [one for one in looks if (own := own_statement.at(process, one)) is not None and _searched(own)]
    decided = any(one.line != place.line and _may_give(process, one, value) for place in found for one in compares)
    return found[0] if len(looks) == len(found) == 1 and not decided else None


def _searched(own: OwnStatement) -> str:
    """The text in which the only call of its kind looks: `pattern.search(text)`, `re.search(pattern, text)`."""
    call = own.only_call(*_SEARCHES)
    of_module = call is not None and isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "re"
    at = 1 if of_module else 0
    return own.parsed.text_of(call.args[at]) if call is not None and len(call.args) > at else ""


def _may_give(process: Process, compares: Location, value: float) -> bool:
    """Whether what a line compares may decide on this reward; not where it chooses between two other numbers."""
    own = own_statement.at(process, compares)
    chosen = [one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.IfExp)] if own is not None else []
    given = [part for one in chosen for part in (one.body, one.orelse)]
    numbers = [one.value for one in given if isinstance(one, ast.Constant)]
    return len(chosen) != 1 or len(numbers) != len(given) or value in numbers
