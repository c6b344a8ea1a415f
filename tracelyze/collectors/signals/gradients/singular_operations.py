"""Operations of a backward that have no finite derivative somewhere: which of them can have made a gradient NaN.

A NaN goes on to everything behind the operation that made it. So such an operation has nothing behind it but gradients
that are not finite. Only the shape of the graph is read, which is there after the backward has released what it saved.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tracelyze.collectors.signals.gradients import hidden_rows
from tracelyze.collectors.tensors import graphs, saved_values

MAX_NAMED = 3
HIDES = ("Where",)  # one branch of its results
HIDDEN = " in a branch that where() hides"
POWER = "a power below 1 at 0"
SINGULAR = {
    "Sqrt": "sqrt at 0", "Rsqrt": "rsqrt at 0", "Pow": POWER,
    "Log": "log at 0", "Log2": "log2 at 0", "Log10": "log10 at 0", "Log1P": "log1p at -1",
    "Div": "division by 0", "Reciprocal": "reciprocal of 0",
    "Acos": "acos at 1", "Asin": "asin at 1", "Acosh": "acosh at 1", "Atanh": "atanh at 1",
    "Logit": "logit at 0 or 1", "Erfinv": "erfinv at 1",
}  # fmt: skip
# Not norm, std and cdist: torch gives them a gradient of 0 where they are 0.
SHAPES = ("Expand", "Unsqueeze", "View", "UnsafeView", "Squeeze", "Reshape", "ExpandAs", "Alias")
_MOST_SHAPES = 4


def suspects(root: Any, finite: Collection[int], broken: Collection[int], nan: bool = True) -> list[str]:
    """What can have made the gradients of the leaves `broken` (by id) not finite, nearest to the loss first; attention
    whose rows may all be masked where there is nothing else, and they are all NaN (`nan`)."""
    order, behind_where = graphs.graph_behind(root, HIDES)
    if len(order) >= graphs.MAX_WALKED:
        return []
    leads_to_finite, leads_to_broken = _reach(order, finite), _reach(order, broken)
    found: dict[str, None] = {}
    squares = set[str]()  # powers of an exponent that is not known: most are squares
    for node in order:
        what = SINGULAR.get(saved_values.kind(node))
        if (
            what is not None
            and _can_be_singular(node)
            and id(node) in leads_to_broken
            and id(node) not in leads_to_finite
        ):
            told = what + HIDDEN * (id(node) in behind_where)
            found.setdefault(told)
            if what == POWER and _exponent(node) is None:
                squares.add(told)
    names = [what for what in found if what not in squares]
    if not names and nan:
        whole = _reach(order, set(finite) - hidden_rows.tables(order))
        if hidden_rows.has_them(order, whole, leads_to_broken):
            return [hidden_rows.MASKED_ROWS]
    return (names or list(found))[:MAX_NAMED]


def _can_be_singular(node: Any) -> bool:
    """Not a division by what is not trained, or by what is kept above 0 (clamp, as in normalize); nor a root of that,
    or of what a constant is added to; nor a power from 1 on."""
    operation = saved_values.kind(node)
    if operation == "Pow":
        exponent = _exponent(node)
        return exponent is None or exponent < 1
    if operation not in ("Div", "Sqrt"):
        return True
    given = node.next_functions[operation == "Div" :]
    taken = given[0][0] if given else None
    for _ in range(_MOST_SHAPES):
        if taken is None or saved_values.kind(taken) not in SHAPES:
            break
        taken = taken.next_functions[0][0] if taken.next_functions else None
    if taken is not None and saved_values.kind(taken) in ("ClampMin", "Clamp"):
        least = getattr(taken, "_saved_min", None)
        return not (isinstance(least, (int, float)) and least > 0)
    if operation == "Sqrt" and taken is not None and saved_values.kind(taken) == "Add":
        return len(graphs.following(taken)) > 1
    return taken is not None


def _exponent(node: Any) -> float | None:
    """The exponent of a power, if it is a number: one that is a tensor is not looked at."""
    exponent = node._saved_exponent if saved_values.operation(node) == "PowBackward0" else None
    return float(exponent) if isinstance(exponent, int | float) else None


def _reach(order: list[Any], leaves: Collection[int]) -> set[int]:
    """Ids of the nodes from which a backward goes on to one of these leaves."""
    found = {id(node) for node in order if id(getattr(node, "variable", None)) in leaves}
    grown = True
    while grown:
        before = len(found)
        for node in reversed(order):
            if id(node) not in found and any(id(one) in found for one in graphs.following(node)):
                found.add(id(node))
        grown = len(found) > before
    return found
