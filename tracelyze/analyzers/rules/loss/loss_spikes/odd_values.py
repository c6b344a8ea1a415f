"""Values in the batches of some steps that lie far beyond those of others: codes for what is missing, other units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.evidence import timing
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from tracelyze.analyzers.recorded.run import Optimization, Process

    Row = Mapping[str, Any]

_LEAST: Final = 3  # batches of such steps: of three that are all beyond the others, chance makes none
_OTHERS: Final = 12  # batches of other steps, whose values show what is usual
_QUIET: Final = 4.0  # a loss below that share of the lowest odd one is a usual one
_BEYOND: Final = 3.0  # times the range of all others, from which on a value is none of a heavy tail


def told(optimization: Optimization, steps: Iterable[int], height: float) -> str:
    """A sentence on what the batches of these steps hold: the values of a field, or targets; else nothing.

    `height`: the lowest loss of these steps. Batches before the first of them come with the same samples: they count by
    their losses, and not at all where these are between the two.
    """
    process = optimization.process
    if process.training:  # these tables count the process's steps
        return ""
    wanted = frozenset(steps)
    begin = min(wanted, default=0)
    numbers, losses = timing.numbers(optimization), optimization.steps["loss"]
    before = numbers < begin
    odd_steps = wanted.union(numbers[before & (losses >= height)].tolist())
    other_steps = frozenset(numbers[~before | (losses < height / _QUIET)].tolist()) - odd_steps
    return _of_fields(process, odd_steps, other_steps) or _of_targets(process, odd_steps, other_steps)


def _of_fields(process: Process, odd_steps: Set[int], other_steps: Set[int]) -> str:
    fields: dict[str, tuple[list[Row], list[Row]]] = {}
    for row in process.tables["batches"].shared_records():
        measured = row["trained"] and row["max"] is not None and row["min"] is not None and not row["nonfinite"]
        step = row["step"] + 1
        if measured and (step in odd_steps or step in other_steps):
            odd, others = fields.setdefault(str(row["field"]), ([], []))
            (odd if step in odd_steps else others).append(row)
    for name, (odd, others) in fields.items():
        if len(odd) >= _LEAST and len(others) >= _OTHERS and (said := _beyond(name, odd, others)):
            return said
    return ""


def _of_targets(process: Process, odd_steps: Set[int], other_steps: Set[int]) -> str:
    """The sentence on the targets of a loss function, where no loader is known that hands them out."""
    places: dict[object, tuple[list[float], list[float]]] = {}
    for row in process.tables["loss_calls"].shared_records():
        measured = row["training"] and row["target_varies"] is not None and not row["target_integer"]
        step = row["step"] + 1
        if measured and (step in odd_steps or step in other_steps):
            odd, others = places.setdefault(row["site"], ([], []))
            (odd if step in odd_steps else others).append(float(row["target_varies"]))
    for odd, others in places.values():
        if len(odd) >= _LEAST and len(others) >= _OTHERS and min(odd) > _BEYOND * max(others):
            return (
                f"the standard deviation of their targets is {number(min(odd))} or more in all {len(odd)} such batches "
                f"that were looked at, and in none of {plural(len(others), 'other')} above {number(max(others))}."
            )
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
        f"field {name} reaches {reaches} in all {len(odd)} such batches that were looked at, and in none of "
        f"{plural(len(others), 'other')} beyond {number(usual)}."
    )
