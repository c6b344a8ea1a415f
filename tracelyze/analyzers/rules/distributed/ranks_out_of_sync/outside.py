"""A part of a model that lies outside of its DistributedDataParallel: its weights differ between ranks, and others do
not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelyze.analyzers.rules.distributed.ranks_out_of_sync import tensors
from tracelyze.analyzers.rules.distributed.ranks_out_of_sync.tensors import DDP, MOST_NAMED
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location


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
            "outside of the wrapper are those of one rank's own data, and whatever is saved is one of them."
        )

    def fix(self) -> str:
        """What to wrap."""
        what = self.called or "the module that holds these tensors"
        return f"Wrap {what} as well, before the optimizer is made, or make it a part of the module that is wrapped."

    def code(self) -> str:
        """The line of code that wraps the module; empty where the module has no name."""
        return f"{self.called} = {DDP}({self.called})  # before the optimizer is made" if self.called else ""


def of(process: Process, others: Sequence[Process], equal: float) -> Outside | None:
    """What the wrapper leaves out; None without a wrapper, and where all tensors differ or too few were looked at."""
    if not tensors.are_wrapped(process):
        return None
    models = list(process.models.records())
    apart, same = tensors.told_apart(process, others, equal)
    if not apart or not same:
        return None
    alone = [row for row in models if row["name"] != DDP and row["parameters"] == len(apart)]
    called = str(alone[0]["called_as"] or "") if len(alone) == 1 else ""
    made = [row for row in process.tables["modules"].records() if called and row["model"] == alone[0]["model"]]
    place = process.site(next((row["made_at"] for row in made if not row["module"]), None))
    return Outside([name for name, _ in apart], len(same), called, place)


def _be(outside: Outside) -> str:
    return "is" if outside.called or len(outside.names) == 1 else "are"
