"""Values in the batches of some steps that lie far beyond those of others: codes for what is missing, other units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracelyze.analyzers.recorded.run import Optimization

    Row = Mapping[str, Any]

_LEAST: Final = 3  # batches of such steps: of three that are all beyond the others, chance makes none
_OTHERS: Final = 12  # batches of other steps, whose values show what is usual
_BEYOND: Final = 3.0  # times the range of all others, from which on a value is none of a heavy tail


def told(optimization: Optimization, steps: Iterable[int]) -> str:
    """A sentence on the field of which each batch of these steps that was looked at holds such a value; else nothing.

    Batches before the first of these steps are left out: the same samples come in the first epochs as well.
    """
    wanted = frozenset(steps)
    begin = min(wanted, default=0)
    fields: dict[str, tuple[list[Row], list[Row]]] = {}
    process = optimization.process
    rows = process.tables["batches"].shared_records() if not process.training else ()  # they count the process's steps
    for row in rows:
        measured = row["trained"] and row["max"] is not None and row["min"] is not None and not row["nonfinite"]
        if measured and row["step"] + 1 >= begin:
            odd, others = fields.setdefault(str(row["field"]), ([], []))
            (odd if row["step"] + 1 in wanted else others).append(row)
    for name, (odd, others) in fields.items():
        if len(odd) >= _LEAST and len(others) >= _OTHERS and (said := _beyond(name, odd, others)):
            return said
    return ""


def _beyond(name: str, odd: list[Row], others: list[Row]) -> str:
    """The sentence, where the values of each odd batch reach far above, or far below, all of the others."""
    low, high = min(row["min"] for row in others), max(row["max"] for row in others)
    far = _BEYOND * (high - low)
    least, most = min(row["max"] for row in odd), max(row["min"] for row in odd)
    if least <= high + far and most >= low - far:
        return ""
    reaches, usual = (f"{number(least)} or more", high) if least > high + far else (f"{number(most)} or less", low)
    return (
        f"field {name} reaches {reaches} in all {len(odd)} of these batches that were looked at, and in none of "
        f"{plural(len(others), 'other')} beyond {number(usual)}."
    )
