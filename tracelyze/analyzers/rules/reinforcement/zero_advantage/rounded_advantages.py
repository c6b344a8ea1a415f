"""Advantages of equal rewards that are not exactly zero: what rounding leaves, or an epsilon makes of that.

Rewards of a group that are all 0.3 have a mean of 0.29999998 in single precision. Divided by a deviation of 0 and an
epsilon, the difference is anything from 1e-7 to 3, and the same for all of the group. That the rewards are equal is
read off the variables of which the script makes its advantages.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

KINDS: Final = ("policy-choices", "policy-deviation", "policy-rewards")
_EQUAL: Final = 1e-6  # derived: in parts of the largest, a few roundings of single precision, of 6e-8 each
_TINY: Final = 1e-2  # derived: rewards of 1 that differ by this little, over the usual epsilon of 1e-4
_REPEATED: Final = 0.5  # derived: of groups of two, the smallest, that lie side by side


def steps(process: Process) -> dict[float, bool]:
    """Steps whose rewards were equal within each group, but for rounding; with each whether that is known of all that
    the advantages are made of, or only of what is named after rewards."""
    looks = [(row["step"], row["text"]) for row in process.events_of(*KINDS)]
    found: dict[float, bool] = {}
    for step, text in looks:
        made, named = _variables(json.loads(text))
        if (made or named) and _equal(made or named):
            found[step] = bool(made)
    return found


def _variables(facts: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Facts about the variables that advantages are made of, and about those with several elements that are named after
    rewards."""
    named = (facts.get("rewards") or {}).values()
    return list((facts.get("weighed") or {}).values()), [one for one in named if one["kind"] == "elements"]


def is_zero(look: dict[str, Any], equal: dict[float, bool]) -> bool:
    """Whether the weights of a policy's loss (loss_graphs) come of such rewards: they are tiny, or repeat themselves
    where nothing but these rewards can have made them."""
    made = equal.get(look["step"])
    if made is None or look.get("weights_largest") is None:
        return False
    return bool(look["weights_largest"] <= _TINY or (made and look["weights_repeated"] >= _REPEATED))


def _equal(held: list[dict[str, Any]]) -> bool:
    """Whether all variables are equal within their groups. The same numbers may be there twice, once not in groups."""
    apart: dict[tuple[float, ...], float] = {}
    for one in held:
        key = one["count"], one["mean"], one["spread"]
        apart[key] = min(one.get("within", 1.0), apart.get(key, 1.0))
    return max(apart.values()) <= _EQUAL
