"""Fields of validation batches that are not what they were in the pass before, and whether that belongs to the task."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

Row = dict[str, Any]


@dataclass
class Field:
    """One field of the batches of validation loaders, and at which places it was not what it was in the pass before."""

    rows: list[Row] = field(default_factory=list)
    changed: list[bool] = field(default_factory=list)


def of(process: Process, own: set[int], integers: bool = False) -> dict[str, Field]:
    """Real fields by name, or those of integers, and of batches of an order that stays whether each is what it was in
    the pass before."""
    loaders = {int(row["loader"]): row for row in process.loaders.records()}
    found: dict[str, Field] = {}
    seen: dict[tuple[Any, ...], str] = {}
    for row in process.tables["batches"].records():
        number = -1 if row["loader"] is None else int(row["loader"])
        wanted = ("int",) if integers else ("float", "bfloat", "uint8")
        known = row["print"] and (integers or row["prints"])
        if number not in own or not str(row["dtype"] or "").startswith(wanted) or not known:
            continue
        one = found.setdefault(str(row["field"]), Field())
        one.rows.append(row)
        if loaders[number]["shuffled"]:
            continue
        made = loaders[number]["made_at"]
        place = number if made is None else made, loaders[number]["length"], row["batch"], row["field"]
        before, seen[place] = seen.get(place), str(row["print"])
        if before is not None:
            one.changed.append(before != seen[place])
    return found


def are_of_the_task(fields: Mapping[str, Field], limits: Limits) -> bool:
    """Whether what is drawn belongs to the samples: noise on one of two fields of a shape, of which the other stays; or
    two views of the same pictures. An input and its target that are flipped together are augmented."""
    for one, other in combinations(fields.values(), 2):
        if not {row["shape"] for row in one.rows} & {row["shape"] for row in other.rows}:
            continue
        if min(len(one.changed), len(other.changed)) < limits["batches"]:  # in an order that changes
            return True
        both = min(np.mean(one.changed), np.mean(other.changed)) >= limits["share"]
        if not both or _alike(one, other, limits):
            return True
    return False


def are_other_samples(process: Process, own: set[int], fields: Mapping[str, Field], limits: Limits) -> bool:
    """Whether the labels of most batches change with their inputs: whole numbers, one or a row of them for a sample,
    which no transform of an input touches. Each pass then makes samples of its own."""
    labels = of(process, own, integers=True).values() if any(any(one.changed) for one in fields.values()) else ()
    flat = [one for one in labels if all(str(row["shape"]).count("x") <= 1 for row in one.rows)]
    return any(len(one.changed) >= limits["batches"] and np.mean(one.changed) >= limits["share"] for one in flat)


def _alike(one: Field, other: Field, limits: Limits) -> bool:
    """Whether two fields hold the same kind of numbers: mean and spread of their batches are about the same."""
    kinds = [[(row["mean"], row["std"]) for row in each.rows if row["std"] is not None] for each in (one, other)]
    if not all(kinds):
        return True
    (mean, spread), (mean_too, spread_too) = (np.median(np.array(kind), axis=0) for kind in kinds)
    most = limits["alike"] * max(spread, spread_too)
    return bool(abs(mean - mean_too) <= most and abs(spread - spread_too) <= most)
