"""Layers that were unfrozen after their DistributedDataParallel was made, which averages what was trainable then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.ranks.averaging import tensors
from tracelyze.analyzers.computed.ranks.averaging.tensors import DDP, MOST_NAMED
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location


@dataclass(frozen=True)
class Unfrozen:
    """The tensors that train since they were unfrozen, and differ between ranks, and how many that train from the start
    are equal. `made_at`: the line that makes the wrapper."""

    names: list[str]
    equal: int
    made_at: Location | None = None

    def title(self, ranks: int) -> str:
        """What drifts apart, in a line."""
        which = f"{plural(len(self.names), 'tensor')}, unfrozen after {DDP} was made,"
        return f"{which} drift{'s' if len(self.names) == 1 else ''} apart on {plural(ranks, 'rank')}"

    def summary(self) -> str:
        """Which tensors those are, behind "they differ, by ... in the end: "."""
        return (
            f"those of {plural(len(self.names), 'tensor')} ({listed(self.names, MOST_NAMED)}), which had no gradients "
            f"before. {plural(self.equal, 'tensor')} that trained from the start {'is' if self.equal == 1 else 'are'} "
            f"equal. {DDP} averages the gradients of what is trainable when it is made; what is unfrozen later, each "
            "rank trains on its part of the data only."
        )

    def fix(self) -> str:
        """When to wrap."""
        return (
            f"Make the {DDP} anew after layers are unfrozen, or make it while all layers that will ever train are "
            "trainable, with find_unused_parameters=True, and freeze them after that."
        )

    def code(self) -> str:
        """The wrapper again, in the script's own words."""
        name, call = _assigned(self.made_at)
        return f"{name} = {call}  # once more, behind the lines that unfreeze"


def _assigned(place: Location | None) -> tuple[str, str]:
    """The name of a wrapper and the call that makes it, where one line holds both."""
    name, equals, call = (place.source if place else "").partition(" = ")
    whole = equals and name.replace(".", "").isidentifier() and call.count("(") == call.count(")") > 0
    return (name, call) if whole else ("model", f"{DDP}(model.module)")


def of(process: Process, others: Sequence[Process], equal: float) -> Unfrozen | None:
    """What was unfrozen behind the wrapper's back; None without a wrapper, and where what differs trained before."""
    if not tensors.are_wrapped(process):
        return None
    apart, same = tensors.told_apart(process, others, equal)
    first: dict[tensors.Key, int] = {}
    for step, norms in sorted(tensors.weight_norms(process).items()):
        first |= {key: step for key in norms if key not in first}
    begun = [first[key] for key in same]
    if not apart or not same or min(first[key] for key in apart) <= max(begun):
        return None
    wrappers = {row["model"] for row in process.models.records() if row["name"] == DDP}
    rows = process.tables["modules"].records()
    made = [row["made_at"] for row in rows if row["model"] in wrappers and not row["module"]]
    return Unfrozen([name for name, _ in apart], len(same), process.site(made[0]) if len(made) == 1 else None)
