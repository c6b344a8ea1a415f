"""Layers that were unfrozen after it was laid down whose gradients are averaged: by a DistributedDataParallel, or by a
list that the script goes through."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelyze.analyzers.rules.distributed.ranks_out_of_sync import left_out, tensors
from tracelyze.analyzers.rules.distributed.ranks_out_of_sync.tensors import DDP, MOST_NAMED
from tracelyze.analyzers.script import script_lines
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location


@dataclass(frozen=True)
class Unfrozen:
    """The tensors that train since they were unfrozen, and differ between ranks, and how many that train from the start
    are equal. `made_at`: the line that makes the wrapper, or that list. `wrapped`: there is a wrapper."""

    names: list[str]
    equal: int
    made_at: Location | None = None
    wrapped: bool = True

    def title(self, ranks: int) -> str:
        """What drifts apart, in a line."""
        late = f"unfrozen after {DDP} was made" if self.wrapped else "unfrozen later"
        which = f"{plural(len(self.names), 'tensor')}, {late},"
        what = f"{which} drift{'s' if len(self.names) == 1 else ''} apart on {plural(ranks, 'rank')}"
        return (
            what if self.wrapped else f"{what}: nothing averages {'its' if len(self.names) == 1 else 'their'} gradients"
        )

    def summary(self) -> str:
        """Which tensors those are, behind "they differ, by ... in the end: "."""
        why = (
            f"{DDP} only averages the gradients of parameters that are trainable when it is created; each rank trains "
            "those unfrozen later on its own part of the data."
            if self.wrapped
            else "So the gradients of the latter are averaged and those of the former are not, as where a list of what "
            "is trainable was made while they were frozen. Each rank trains them on its part of the data only."
        )
        return (
            f"those of {plural(len(self.names), 'tensor')} ({listed(self.names, MOST_NAMED)}), which had no gradients "
            f"before. {plural(self.equal, 'tensor')} that trained from the start {'is' if self.equal == 1 else 'are'} "
            f"equal. {why}"
        )

    def fix(self) -> str:
        """When to wrap, or to make the list."""
        if not self.wrapped:
            return (
                "Go through all parameters each time, and average the gradients of those that have one, or make the "
                "list of them anew after layers are unfrozen."
            )
        return (
            f"Make the {DDP} anew after layers are unfrozen, or make it while all layers that will ever train are "
            "trainable, with find_unused_parameters=True, and freeze them after that."
        )

    def code(self) -> str:
        """The wrapper again, in the script's own words."""
        if not self.wrapped:
            return left_out.CODE
        name, call = _assigned(self.made_at)
        call = re.sub(rf"\(\s*{re.escape(name)}(?![\w.])", f"({name}.module", call)  # which is wrapped by now
        return f"{name} = {call}  # once more, behind the lines that unfreeze"


def _assigned(place: Location | None) -> tuple[str, str]:
    """The name of a wrapper and the call that makes it, where one line holds both."""
    name, equals, call = (place.source if place else "").partition(" = ")
    whole = equals and name.replace(".", "").isidentifier() and call.count("(") == call.count(")") > 0
    return (name, call) if whole else ("model", f"{DDP}(model.module)")


def of(process: Process, others: Sequence[Process], equal: float) -> Unfrozen | None:
    """What was unfrozen behind the back of what averages; None where what differs trained before, and without a wrapper
    where nothing shows that gradients are still averaged then."""
    apart, same = tensors.told_apart(process, others, equal)
    first: dict[tensors.Key, int] = {}
    for step, norms in sorted(tensors.weight_norms(process).items()):
        first |= {key: step for key in norms if key not in first}
    begun = [first[key] for key in same]
    if not apart or not same or min(first[key] for key in apart) <= max(begun):
        return None
    if not tensors.are_wrapped(process):
        moving = tensors.moved(process, equal, min(first[key] for key in apart))
        still = [key for key in same if key in moving]
        place = script_lines.trainable(process)
        return Unfrozen([name for name, _ in apart], len(still), place, wrapped=False) if still else None
    wrappers = {row["model"] for row in process.models.records() if row["name"] == DDP}
    rows = process.tables["modules"].records()
    made = [row["made_at"] for row in rows if row["model"] in wrappers and not row["module"]]
    return Unfrozen([name for name, _ in apart], len(same), process.site(made[0]) if len(made) == 1 else None)
