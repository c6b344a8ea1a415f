"""A part of a model that its DistributedDataParallel does not average, since it lies outside or was unfrozen later: its
weights differ between ranks, and others do not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

DDP = "DistributedDataParallel"
MOST_NAMED = 4
Key = tuple[str, int]


@dataclass(frozen=True)
class Outside:
    """The tensors that differ between ranks, how many are equal, and the module that holds the former: the name by
    which it is called and the line that makes it, where there is only one that can be it."""

    names: list[str]
    equal: int
    called: str = ""
    made_at: Location | None = None

    def title(self, ranks: int) -> str:
        """What drifts apart, in a line."""
        what = self.called or plural(len(self.names), "tensor")
        return f"{what} {_be(self)} outside of {DDP}: {'its' if self.called else 'their'} weights drift apart on " + (
            plural(ranks, "rank")
        )

    def summary(self) -> str:
        """Which tensors those are, behind "they differ, by ... in the end: "."""
        of = f"all of {self.called}: " if self.called else ""
        return (
            f"those of {plural(len(self.names), 'tensor')} ({of}{listed(self.names, MOST_NAMED)}), while "
            f"{plural(self.equal, 'tensor')} inside of {DDP} {'is' if self.equal == 1 else 'are'} equal. Gradients "
            "outside of the wrapper are those of one rank's own data, and what is saved is one of them."
        )

    def fix(self) -> str:
        """What to wrap."""
        what = self.called or "the module that holds these tensors"
        return f"Wrap {what} as well, before the optimizer is made, or make it a part of the module that is wrapped."

    def code(self) -> str:
        """The same as a line of code; empty where the module has no name."""
        return f"{self.called} = {DDP}({self.called})  # before the optimizer is made" if self.called else ""


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


def unfrozen(process: Process, others: Sequence[Process], equal: float) -> Unfrozen | None:
    """What was unfrozen behind the wrapper's back; None without a wrapper, and where what differs trained before."""
    if not is_used(process):
        return None
    apart, same = told_apart(process, others, equal)
    first: dict[Key, int] = {}
    for step, norms in sorted(_by_step(process).items()):
        first |= {key: step for key in norms if key not in first}
    begun = [first[key] for key in same]
    if not apart or not same or min(first[key] for key in apart) <= max(begun):
        return None
    wrappers = {row["model"] for row in process.models.records() if row["name"] == DDP}
    rows = process.tables["modules"].records()
    made = [row["made_at"] for row in rows if row["model"] in wrappers and not row["module"]]
    return Unfrozen([name for name, _ in apart], len(same), process.site(made[0]) if len(made) == 1 else None)


def is_used(process: Process) -> bool:
    """Whether a model of this process is in the wrapper."""
    return any(row["name"] == DDP for row in process.models.records())


def of(process: Process, others: Sequence[Process], equal: float) -> Outside | None:
    """What the wrapper leaves out; None without a wrapper, and where all tensors differ or too few were looked at."""
    if not is_used(process):
        return None
    models = list(process.models.records())
    apart, same = told_apart(process, others, equal)
    if not apart or not same:
        return None
    alone = [row for row in models if row["name"] != DDP and row["parameters"] == len(apart)]
    called = str(alone[0]["called_as"] or "") if len(alone) == 1 else ""
    made = [row for row in process.tables["modules"].records() if called and row["model"] == alone[0]["model"]]
    place = process.site(next((row["made_at"] for row in made if not row["module"]), None))
    return Outside([name for name, _ in apart], len(same), called, place)


def told_apart(process: Process, others: Sequence[Process], equal: float) -> tuple[list[Key], list[Key]]:
    """The tensors whose norms differ on some ranks at the last step that each of these looked at as well, and those
    whose norms are equal on all of them."""
    own = _by_step(process)
    apart: set[Key] = set()
    same: set[Key] = {key for norms in own.values() for key in norms}
    for other in others:
        theirs = _by_step(other)
        last = max(own.keys() & theirs.keys(), default=None)
        if last is None:
            return [], []
        common = own[last].keys() & theirs[last].keys()
        far = {key for key in common if abs(own[last][key] - theirs[last][key]) > equal * abs(own[last][key])}
        apart |= far
        same &= common - far
    order = list(dict.fromkeys(key for norms in own.values() for key in norms))
    return [key for key in order if key in apart], [key for key in order if key in same]


def moved(process: Process, equal: float) -> set[Key]:
    """The tensors whose norms are not what they were when they were first looked at."""
    by_step = _by_step(process)
    if not by_step:
        return set()
    first, last = by_step[min(by_step)], by_step[max(by_step)]
    return {key for key in first.keys() & last.keys() if abs(first[key] - last[key]) > equal * abs(first[key])}


def _by_step(process: Process) -> dict[int, dict[Key, float]]:
    """Norms of the weights by step; a name that two models use counts up."""
    found: dict[int, dict[Key, float]] = {}
    seen: Counter[tuple[int, str]] = Counter()
    for row in process.tables["parameters"].records():
        if row["weight_norm"] is not None and np.isfinite(row["weight_norm"]):
            step, name = int(row["step"]), str(row["parameter"])
            found.setdefault(step, {})[name, seen[step, name]] = float(row["weight_norm"])
            seen[step, name] += 1
    return found


def _be(outside: Outside) -> str:
    return "is" if outside.called or len(outside.names) == 1 else "are"
