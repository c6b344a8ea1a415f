"""Gradients of some tensors that no rank averages, beside others that are averaged by the script itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelyze.analyzers.rules.distributed.ranks_out_of_sync import tensors
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

CODE = """for p in model.parameters():  # every one of them, right before optimizer.step()
    if p.grad is not None:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()"""


@dataclass(frozen=True)
class LeftOut:
    """The tensors that differ between ranks, and how many others train and stay equal."""

    names: list[str]
    equal: int
    made_at: Location | None = None  # no line makes them: it is the averaging that leaves them out

    def title(self, ranks: int) -> str:
        """What drifts apart, in a line."""
        return f"{self._count()} drift apart on {plural(ranks, 'rank')}: the averaging of gradients leaves them out"

    def summary(self) -> str:
        """Which tensors those are, behind "they differ, by ... in the end: "."""
        return (
            f"those of {self._count()} that were looked at ({listed(self.names, tensors.MOST_NAMED)}). "
            f"{plural(self.equal, 'other')} {'is' if self.equal == 1 else 'are'} trained and "
            f"{'stays' if self.equal == 1 else 'stay'} equal, so gradients are averaged, but not those of the former. "
            "Each rank trains these on its part of the data only, and whatever is saved is one of them."
        )

    def fix(self) -> str:
        """Where to look."""
        return (
            "Average the gradients of these tensors as well. Check what the averaging skips: a last bucket that is "
            "never sent, a condition on names or sizes, layers that were added later."
        )

    def code(self) -> str:
        """All of them, one by one."""
        return CODE

    def _count(self) -> str:
        count = len(self.names)
        return f"{count:,} of {plural(count + self.equal, 'tensor')}"


def of(process: Process, others: Sequence[Process], equal: float) -> LeftOut | None:
    """What the averaging leaves out; None where all tensors differ, where those that do not differ never train, and
    where a wrapper averages."""
    if tensors.are_wrapped(process):
        return None
    apart, same = tensors.told_apart(process, others, equal)
    trained = [key for key in same if key in tensors.moved(process, equal)]
    if not apart or not trained:
        return None
    return LeftOut([name for name, _ in apart], len(trained))
